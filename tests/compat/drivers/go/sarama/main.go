// sarama, driven a line at a time.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"duramen/compat/wire"

	"github.com/IBM/sarama"
)

const wait = 60 * time.Second

type driver struct {
	address   string
	admin     sarama.ClusterAdmin
	producers map[string]*producing
	members   map[string]*member
}

type producing struct {
	producer sarama.AsyncProducer
	sent     []*sarama.ProducerMessage
	done     sync.WaitGroup
	mutex    sync.Mutex
	failed   error
}

func main() {
	sarama.Logger = log.New(os.Stderr, "", log.LstdFlags)
	admin, err := sarama.NewClusterAdmin([]string{os.Args[1]}, settings())
	if err != nil {
		panic(err)
	}
	d := &driver{os.Args[1], admin, map[string]*producing{}, map[string]*member{}}
	wire.Serve("sarama", version("github.com/IBM/sarama"), d.answer)
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

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = 1048588
	config.Producer.Retry.Max = 100
	config.Metadata.RefreshFrequency = 500 * time.Millisecond
	config.Metadata.Retry.Max = 100
	config.Consumer.Return.Errors = true
	return config
}

func (d *driver) answer(call wire.Call) (any, error) {
	switch call.Do {
	case "produce":
		return d.produce(call)
	case "open":
		return nil, d.open(call)
	case "send":
		d.producers[call.Producer].send(call)
		return nil, nil
	case "flush":
		return d.producers[call.Producer].flush()
	case "close", "drop":
		p := d.producers[call.Producer]
		delete(d.producers, call.Producer)
		p.producer.AsyncClose()
		return nil, nil
	case "begin":
		return nil, d.producers[call.Producer].producer.BeginTxn()
	case "commit":
		return nil, d.producers[call.Producer].producer.CommitTxn()
	case "abort":
		return nil, d.producers[call.Producer].producer.AbortTxn()
	case "send_offsets":
		offset := &sarama.PartitionOffsetMetadata{Partition: call.Partition, Offset: call.Offset}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{call.Topic: {offset}}
		return nil, d.producers[call.Producer].producer.AddOffsetsToTxn(offsets, call.Group)
	case "read":
		return d.read(call)
	case "offset_at":
		client, err := sarama.NewClient([]string{d.address}, settings())
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return client.GetOffset(call.Topic, call.Partition, call.Timestamp)
	case "join":
		return nil, d.join(call)
	case "commit_member":
		d.members[call.Member].commit()
		return nil, nil
	case "leave":
		return nil, d.members[call.Member].leave()
	}
	return d.administer(call)
}

func started(config *sarama.Config, address string) (*producing, error) {
	producer, err := sarama.NewAsyncProducer([]string{address}, config)
	if err != nil {
		return nil, err
	}
	p := &producing{producer: producer}
	go func() {
		for range producer.Successes() {
			p.done.Done()
		}
	}()
	go func() {
		for one := range producer.Errors() {
			p.mutex.Lock()
			p.failed = one.Err
			p.mutex.Unlock()
			p.done.Done()
		}
	}()
	return p, nil
}

func (d *driver) produce(call wire.Call) (any, error) {
	config := settings()
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[call.Compression]
	config.Producer.RequiredAcks = sarama.WaitForAll
	if call.Acks != nil {
		config.Producer.RequiredAcks = sarama.RequiredAcks(*call.Acks)
	}
	p, err := started(config, d.address)
	if err != nil {
		return nil, err
	}
	defer p.producer.AsyncClose()
	p.send(call)
	return p.flush()
}

func (d *driver) open(call wire.Call) error {
	config := settings()
	if call.Idempotent || call.Transactional != "" {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
		config.Producer.Transaction.ID = call.Transactional
		config.Producer.Transaction.Retry.Max = 100
	}
	p, err := started(config, d.address)
	d.producers[call.Producer] = p
	return err
}

func (p *producing) send(call wire.Call) {
	for _, one := range call.Records {
		message := &sarama.ProducerMessage{Topic: call.Topic, Partition: one.Partition}
		if one.Key != nil {
			message.Key = sarama.ByteEncoder(wire.Raw(one.Key))
		}
		if one.Value != nil {
			message.Value = sarama.ByteEncoder(wire.Raw(one.Value))
		}
		if one.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, pair := range one.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(*pair[0]), Value: wire.Raw(pair[1])})
		}
		p.done.Add(1)
		p.sent = append(p.sent, message)
		p.producer.Input() <- message
	}
}

func (p *producing) flush() (any, error) {
	p.done.Wait()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.failed != nil {
		return nil, p.failed
	}
	offsets := []int64{}
	for _, one := range p.sent {
		offsets = append(offsets, one.Offset)
	}
	p.sent = nil
	return offsets, nil
}

func (d *driver) read(call wire.Call) (any, error) {
	config := settings()
	if call.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{d.address}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(call.Topic, call.Partition, call.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.AsyncClose()
	found := []wire.Found{}
	deadline := time.After(wait)
	for len(found) < call.Count {
		select {
		case <-deadline:
			return nil, fmt.Errorf("%d records did not come", call.Count-len(found))
		case failed := <-partition.Errors():
			return nil, failed
		case one := <-partition.Messages():
			headers := [][]*string{}
			for _, header := range one.Headers {
				headers = append(headers, []*string{wire.Text(header.Key), wire.Text(header.Value)})
			}
			found = append(found, wire.Found{
				Offset: one.Offset, Value: wire.Text(one.Value), Key: wire.Text(one.Key), Headers: headers,
				Timestamp: one.Timestamp.UnixMilli(),
			})
		}
	}
	return found, nil
}

// A member of a group; each assignment is a session.
type member struct {
	name    string
	topic   string
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	done    chan struct{}
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
}

func (d *driver) join(call wire.Call) error {
	if call.Protocol == "consumer" {
		return wire.Lacks("it speaks the classic protocol only")
	}
	if call.Strategy == "cooperative-sticky" {
		return wire.Lacks("it has no cooperative assignor")
	}
	config := settings()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.InstanceId = call.Instance
	if call.SessionMs > 0 {
		config.Consumer.Group.Session.Timeout = time.Duration(call.SessionMs) * time.Millisecond
	}
	group, err := sarama.NewConsumerGroup([]string{d.address}, call.Group, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{name: call.Member, topic: call.Topic, group: group, cancel: cancel, done: make(chan struct{})}
	d.members[call.Member] = m
	go func() {
		for failed := range group.Errors() {
			fmt.Fprintln(os.Stderr, failed)
		}
	}()
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{call.Topic}, m); err != nil {
				fmt.Fprintln(os.Stderr, err)
				if errors.Is(err, sarama.ErrClosedConsumerGroup) {
					return
				}
			}
		}
	}()
	return nil
}

func (m *member) held(session sarama.ConsumerGroupSession) map[int32]bool {
	found := map[int32]bool{}
	for _, one := range session.Claims()[m.topic] {
		found[one] = true
	}
	return found
}

// Setup begins a session.
func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	wire.Holds(m.name, m.held(session))
	return nil
}

// Cleanup ends a session.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	wire.Lost(m.name, m.held(session))
	return nil
}

// ConsumeClaim reads a partition.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for one := range claim.Messages() {
		session.MarkMessage(one, "")
		wire.Heard(m.name, one.Partition, one.Offset, one.Value)
	}
	return nil
}

func (m *member) commit() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session.Commit()
}

func (m *member) leave() error {
	m.cancel()
	<-m.done
	return m.group.Close()
}

func (d *driver) administer(call wire.Call) (any, error) {
	switch call.Do {
	case "create_topic":
		config := map[string]*string{}
		for name, value := range call.Config {
			config[name] = &value
		}
		detail := &sarama.TopicDetail{NumPartitions: call.Partitions, ReplicationFactor: 1, ConfigEntries: config}
		return nil, d.admin.CreateTopic(call.Topic, detail, false)
	case "delete_topic":
		return nil, d.admin.DeleteTopic(call.Topic)
	case "partitions":
		found, err := d.admin.DescribeTopics([]string{call.Topic})
		if err != nil {
			return nil, err
		}
		return len(found[0].Partitions), nil
	case "grow":
		return nil, d.admin.CreatePartitions(call.Topic, call.Partitions, nil, false)
	case "configs":
		found, err := d.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: call.Topic})
		configs := map[string]string{}
		for _, one := range found {
			configs[one.Name] = one.Value
		}
		return configs, err
	case "set_config":
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &call.NewValue}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{call.Name: entry}
		return nil, d.admin.IncrementalAlterConfig(sarama.TopicResource, call.Topic, entries, false)
	case "replace_configs":
		entries := map[string]*string{}
		for name, value := range call.Config {
			entries[name] = &value
		}
		return nil, d.admin.AlterConfig(sarama.TopicResource, call.Topic, entries, false)
	case "delete_records":
		return nil, d.admin.DeleteRecords(call.Topic, map[int32]int64{call.Partition: call.Before})
	case "groups":
		found, err := d.admin.ListConsumerGroups()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		return names, err
	case "group":
		found, err := d.admin.DescribeConsumerGroups([]string{call.Group})
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": strings.ToLower(found[0].State), "members": len(found[0].Members)}, nil
	case "committed":
		found, err := d.admin.ListConsumerGroupOffsets(call.Group, map[string][]int32{call.Topic: {call.Partition}})
		if err != nil {
			return nil, err
		}
		return found.GetBlock(call.Topic, call.Partition).Offset, nil
	case "delete_group":
		return nil, d.admin.DeleteConsumerGroup(call.Group)
	}
	return nil, wire.Lacks("it has no call for this: " + call.Do)
}
