// franz-go, driven a line at a time.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"duramen/compat/wire"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 60 * time.Second

type producing struct {
	client  *kgo.Client
	results []*kgo.ProduceResult
}

type member struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
}

type driver struct {
	address   string
	admin     *kadm.Client
	producers map[string]*producing
	members   map[string]*member
}

func main() {
	address := os.Args[1]
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	d := &driver{address, kadm.NewClient(client), map[string]*producing{}, map[string]*member{}}
	wire.Serve("franz-go", version("github.com/twmb/franz-go"), d.answer)
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return "unknown"
}

func (d *driver) answer(call wire.Call) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	switch call.Do {
	case "produce":
		return d.produce(ctx, call)
	case "open":
		return nil, d.open(call)
	case "send":
		d.producers[call.Producer].send(call)
		return nil, nil
	case "flush":
		return d.producers[call.Producer].flush(ctx)
	case "close", "drop":
		d.producers[call.Producer].client.Close()
		delete(d.producers, call.Producer)
		return nil, nil
	case "begin":
		d.producers[call.Producer].results = nil
		return nil, d.producers[call.Producer].client.BeginTransaction()
	case "commit":
		return nil, d.end(ctx, call, kgo.TryCommit)
	case "abort":
		return nil, d.end(ctx, call, kgo.TryAbort)
	case "send_offsets":
		return nil, wire.Lacks("offsets get into its transactions only through a session that consumes as well")
	case "read":
		return d.read(ctx, call)
	case "offset_at":
		found, err := d.admin.ListOffsetsAfterMilli(ctx, call.Timestamp, call.Topic)
		if err != nil {
			return nil, err
		}
		one, _ := found.Lookup(call.Topic, call.Partition)
		return one.Offset, one.Err
	case "join":
		return nil, d.join(call)
	case "commit_member":
		return nil, d.members[call.Member].client.CommitUncommittedOffsets(ctx)
	case "leave":
		d.members[call.Member].leave()
		return nil, nil
	}
	return d.administer(ctx, call)
}

func (d *driver) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(d.address), kgo.MetadataMinAge(10 * time.Millisecond), kgo.MetadataMaxAge(500 * time.Millisecond),
	}, more...)
}

func (d *driver) produce(ctx context.Context, call wire.Call) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(), "": kgo.NoCompression(),
	}
	acks := kgo.AllISRAcks()
	if call.Acks != nil {
		acks = map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}[*call.Acks]
	}
	client, err := kgo.NewClient(d.options(
		kgo.ProducerBatchCompression(codecs[call.Compression]), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.ProducerBatchMaxBytes(1048588),
	)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	p := &producing{client: client}
	p.send(call)
	return p.flush(ctx)
}

func (d *driver) open(call wire.Call) error {
	options := d.options(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if call.Transactional != "" {
		options = append(options, kgo.TransactionalID(call.Transactional))
	}
	client, err := kgo.NewClient(options...)
	if err == nil && call.Transactional != "" {
		_, _, err = client.ProducerID(context.Background())
	}
	d.producers[call.Producer] = &producing{client: client}
	return err
}

func (p *producing) send(call wire.Call) {
	for _, one := range call.Records {
		record := &kgo.Record{Topic: call.Topic, Partition: one.Partition, Key: wire.Raw(one.Key), Value: wire.Raw(one.Value)}
		if one.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, pair := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: *pair[0], Value: wire.Raw(pair[1])})
		}
		result := &kgo.ProduceResult{}
		p.results = append(p.results, result)
		p.client.Produce(context.Background(), record, func(r *kgo.Record, err error) { *result = kgo.ProduceResult{Record: r, Err: err} })
	}
}

func (p *producing) flush(ctx context.Context) (any, error) {
	if err := p.client.Flush(ctx); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, one := range p.results {
		if one.Err != nil {
			return nil, one.Err
		}
		offsets = append(offsets, one.Record.Offset)
	}
	p.results = nil
	return offsets, nil
}

func (d *driver) end(ctx context.Context, call wire.Call, how kgo.TransactionEndTry) error {
	p := d.producers[call.Producer]
	if how == kgo.TryCommit {
		if _, err := p.flush(ctx); err != nil {
			return err
		}
	} else if err := p.client.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return p.client.EndTransaction(ctx, how)
}

func (d *driver) read(ctx context.Context, call wire.Call) (any, error) {
	at := map[string]map[int32]kgo.Offset{call.Topic: {call.Partition: kgo.NewOffset().At(call.Offset)}}
	options := d.options(kgo.ConsumePartitions(at))
	if call.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []wire.Found{}
	for len(found) < call.Count {
		fetches := client.PollRecords(ctx, call.Count-len(found))
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%d records did not come", call.Count-len(found))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			headers := [][]*string{}
			for _, header := range r.Headers {
				headers = append(headers, []*string{&header.Key, wire.Text(header.Value)})
			}
			found = append(found, wire.Found{
				Offset: r.Offset, Value: wire.Text(r.Value), Key: wire.Text(r.Key), Headers: headers,
				Timestamp: r.Timestamp.UnixMilli(),
			})
		})
	}
	return found, nil
}

func (d *driver) join(call wire.Call) error {
	held := map[int32]bool{}
	numbers := func(partitions map[string][]int32) map[int32]bool {
		found := map[int32]bool{}
		for _, one := range partitions[call.Topic] {
			found[one] = true
		}
		return found
	}
	taken := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		lost := numbers(partitions)
		for one := range lost {
			delete(held, one)
		}
		wire.Lost(call.Member, lost)
		wire.Holds(call.Member, held)
	}
	given := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		for one := range numbers(partitions) {
			held[one] = true
		}
		wire.Holds(call.Member, held)
	}
	session := 10_000
	if call.SessionMs > 0 {
		session = call.SessionMs
	}
	options := d.options(
		kgo.ConsumerGroup(call.Group), kgo.ConsumeTopics(call.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(time.Duration(session)*time.Millisecond),
		kgo.HeartbeatInterval(300*time.Millisecond), kgo.OnPartitionsAssigned(given), kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	)
	if call.Strategy == "cooperative-sticky" {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if call.Instance != "" {
		options = append(options, kgo.InstanceID(call.Instance))
	}
	if call.Protocol == "consumer" {
		//lint:ignore SA1029 the client wants this key
		next := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
		options = append(options, kgo.WithContext(next))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{client, cancel, make(chan struct{})}
	d.members[call.Member] = m
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachError(func(topic string, partition int32, err error) { fmt.Fprintln(os.Stderr, topic, partition, err) })
			fetches.EachRecord(func(r *kgo.Record) { wire.Heard(call.Member, r.Partition, r.Offset, r.Value) })
		}
	}()
	return nil
}

func (m *member) leave() {
	m.cancel()
	<-m.done
	m.client.Close()
}

func (d *driver) administer(ctx context.Context, call wire.Call) (any, error) {
	switch call.Do {
	case "create_topic":
		config := map[string]*string{}
		for name, value := range call.Config {
			config[name] = &value
		}
		found, err := d.admin.CreateTopics(ctx, call.Partitions, 1, config, call.Topic)
		if err == nil {
			err = found[call.Topic].Err
		}
		return nil, err
	case "delete_topic":
		found, err := d.admin.DeleteTopics(ctx, call.Topic)
		if err == nil {
			err = found[call.Topic].Err
		}
		return nil, err
	case "partitions":
		found, err := d.admin.ListTopics(ctx, call.Topic)
		return len(found[call.Topic].Partitions), err
	case "grow":
		found, err := d.admin.UpdatePartitions(ctx, int(call.Partitions), call.Topic)
		if err == nil {
			err = found[call.Topic].Err
		}
		return nil, err
	case "configs":
		found, err := d.admin.DescribeTopicConfigs(ctx, call.Topic)
		configs := map[string]string{}
		if err == nil {
			for _, one := range found[0].Configs {
				configs[one.Key] = one.MaybeValue()
			}
		}
		return configs, err
	case "set_config":
		found, err := d.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: call.Name, Value: &call.NewValue}}, call.Topic)
		if err == nil {
			err = found[0].Err
		}
		return nil, err
	case "replace_configs":
		changes := []kadm.AlterConfig{}
		for name, value := range call.Config {
			changes = append(changes, kadm.AlterConfig{Name: name, Value: &value})
		}
		found, err := d.admin.AlterTopicConfigsState(ctx, changes, call.Topic)
		if err == nil {
			err = found[0].Err
		}
		return nil, err
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(call.Topic, call.Partition, call.Before, -1)
		found, err := d.admin.DeleteRecords(ctx, offsets)
		one, _ := found.Lookup(call.Topic, call.Partition)
		if err == nil {
			err = one.Err
		}
		return one.LowWatermark, err
	case "groups":
		found, err := d.admin.ListGroups(ctx)
		return found.Groups(), err
	case "group":
		found, err := d.admin.DescribeGroups(ctx, call.Group)
		one := found[call.Group]
		return map[string]any{"state": strings.ToLower(one.State), "members": len(one.Members)}, err
	case "committed":
		found, err := d.admin.FetchOffsets(ctx, call.Group)
		one, _ := found.Lookup(call.Topic, call.Partition)
		return one.At, err
	case "delete_group":
		found, err := d.admin.DeleteGroups(ctx, call.Group)
		if err == nil {
			err = found[call.Group].Err
		}
		return nil, err
	}
	return nil, wire.Lacks("it has no call for this: " + call.Do)
}
