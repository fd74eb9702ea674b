import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's own client, driven a line at a time: see tests/compat/driving.py. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final long WAIT_S = 60;

    private final String address;
    private final Admin admin;
    private final Map<String, Producing> producers = new HashMap<>();
    private final Map<String, Member> members = new HashMap<>();

    private Driver(String address) {
        this.address = address;
        this.admin = Admin.create(common());
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(arguments[0]);
        say(Map.of("hello", Map.of("client", "kafka-clients " + System.getProperty("kafka.version"),
            "version", System.getProperty("kafka.version"))));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Call call = new Call(JSON.readValue(line, Map.class));
            Map<String, Object> answer = new HashMap<>();
            answer.put("id", call.fields.get("id"));
            try {
                answer.put("ok", driver.call(call));
            } catch (UnsupportedOperationException lacks) {
                answer.put("lacks", lacks.getMessage());
            } catch (ExecutionException failed) {
                failed.printStackTrace();
                answer.put("error", String.valueOf(failed.getCause()));
            } catch (Exception failed) {
                failed.printStackTrace();
                answer.put("error", String.valueOf(failed));
            }
            say(answer);
        }
        System.exit(0);
    }

    private static synchronized void say(Map<String, Object> said) {
        try {
            OUT.println(JSON.writeValueAsString(said));
        } catch (java.io.IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static byte[] raw(Object text) {
        return text == null ? null : ((String) text).getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String text(byte[] raw) {
        return raw == null ? null : new String(raw, StandardCharsets.ISO_8859_1);
    }

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("reconnect.backoff.max.ms", "200");
        return properties;
    }

    private Object call(Call call) throws Exception {
        return switch (call.text("do")) {
            case "produce" -> produce(call);
            case "open" -> open(call);
            case "send" -> producers.get(call.text("producer")).send(call);
            case "flush" -> producers.get(call.text("producer")).flush();
            case "close" -> close(call, Duration.ofSeconds(WAIT_S));
            case "drop" -> close(call, Duration.ZERO);
            case "begin" -> producers.get(call.text("producer")).begin();
            case "commit" -> producers.get(call.text("producer")).commit();
            case "abort" -> producers.get(call.text("producer")).abort();
            case "send_offsets" -> sendOffsets(call);
            case "read" -> read(call);
            case "offset_at" -> offsetAt(call);
            case "join" -> join(call);
            case "commit_member" -> members.get(call.text("member")).tell("commit");
            case "leave" -> members.remove(call.text("member")).tell("leave");
            default -> administer(call);
        };
    }

    // -- producing

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> settings) {
        Properties properties = common();
        properties.put("max.request.size", "1048700");
        properties.put("retry.backoff.max.ms", "200");
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Object produce(Call call) throws Exception {
        Map<String, String> settings = Map.of(
            "compression.type", call.text("compression", "none"), "acks", String.valueOf(call.number("acks", -1)),
            "linger.ms", "20", "enable.idempotence", "false");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            Producing producing = new Producing(producer);
            producing.send(call);
            return producing.flush();
        }
    }

    private Object open(Call call) {
        String id = call.text("transactional", "");
        Map<String, String> settings = new HashMap<>();
        settings.put("enable.idempotence", String.valueOf(call.flag("idempotent") || !id.isEmpty()));
        if (!id.isEmpty()) {
            settings.put("transactional.id", id);
        }
        KafkaProducer<byte[], byte[]> producer = producer(settings);
        producers.put(call.text("producer"), new Producing(producer));
        if (!id.isEmpty()) {
            producer.initTransactions();
        }
        return null;
    }

    private Object close(Call call, Duration wait) {
        producers.remove(call.text("producer")).producer.close(wait);
        return null;
    }

    private Object sendOffsets(Call call) {
        Map<TopicPartition, OffsetAndMetadata> offsets =
            Map.of(call.partition(), new OffsetAndMetadata(call.number("offset", 0)));
        ConsumerGroupMetadata group;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", call.text("group")))) {
            group = consumer.groupMetadata();
        }
        producers.get(call.text("producer")).producer.sendOffsetsToTransaction(offsets, group);
        return null;
    }

    // -- reading

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, String> settings) {
        Properties properties = common();
        properties.put("enable.auto.commit", "false");
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object read(Call call) {
        String isolation = call.flag("committed") ? "read_committed" : "read_uncommitted";
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("isolation.level", isolation))) {
            consumer.assign(List.of(call.partition()));
            consumer.seek(call.partition(), call.number("offset", 0));
            List<Map<String, Object>> found = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (found.size() < call.number("count", 0)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("records did not come: only " + found.size() + " did");
                }
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofSeconds(1))) {
                    if (found.size() < call.number("count", 0)) {
                        found.add(described(one));
                    }
                }
            }
            return found;
        }
    }

    private static Map<String, Object> described(ConsumerRecord<byte[], byte[]> one) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : one.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> found = new HashMap<>();
        found.put("offset", one.offset());
        found.put("key", text(one.key()));
        found.put("value", text(one.value()));
        found.put("headers", headers);
        found.put("timestamp", one.timestamp());
        return found;
    }

    private Object offsetAt(Call call) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            var found = consumer.offsetsForTimes(Map.of(call.partition(), call.number("timestamp", 0)));
            return found.get(call.partition()) == null ? null : found.get(call.partition()).offset();
        }
    }

    // -- groups

    private Object join(Call call) {
        Map<String, String> settings = new HashMap<>();
        settings.put("group.id", call.text("group"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "500");
        if (call.text("protocol", "classic").equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            String assignor = call.text("strategy", "range").equals("range") ? "Range" : "CooperativeSticky";
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor + "Assignor");
            settings.put("session.timeout.ms", String.valueOf(call.number("session_ms", 10_000)));
            settings.put("heartbeat.interval.ms", "300");
        }
        if (!call.text("instance", "").isEmpty()) {
            settings.put("group.instance.id", call.text("instance"));
        }
        Member member = new Member(call.text("member"), consumer(settings), call.text("topic"));
        members.put(call.text("member"), member);
        Thread thread = new Thread(member);
        thread.setDaemon(true);
        thread.start();
        return null;
    }

    // -- administration

    private Object administer(Call call) throws Exception {
        String topic = call.text("topic", "");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        switch (call.text("do")) {
            case "create_topic":
                NewTopic wanted = new NewTopic(topic, (int) call.number("partitions", 1), (short) 1);
                return done(admin.createTopics(List.of(wanted.configs(call.map("config")))).all());
            case "delete_topic":
                return done(admin.deleteTopics(List.of(topic)).all());
            case "partitions":
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            case "grow":
                int count = (int) call.number("partitions", 1);
                return done(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all());
            case "configs":
                Map<String, String> configs = new TreeMap<>();
                for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                    configs.put(entry.name(), entry.value());
                }
                return configs;
            case "set_config":
                ConfigEntry entry = new ConfigEntry(call.text("name"), call.text("value"));
                Collection<AlterConfigOp> changes = List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
                return done(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
            case "replace_configs":
                throw new UnsupportedOperationException("AlterConfigs was taken out of it with 4.0");
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(call.number("before", 0));
                var deleted = admin.deleteRecords(Map.of(call.partition(), before)).lowWatermarks();
                return deleted.get(call.partition()).get().lowWatermark();
            default:
                return administerGroups(call);
        }
    }

    private Object administerGroups(Call call) throws Exception {
        String group = call.text("group", "");
        switch (call.text("do")) {
            case "groups":
                return admin.listGroups().valid().get().stream().map(GroupListing::groupId).toList();
            case "group":
                var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                String state = found.groupState().toString().toLowerCase(Locale.ROOT);
                return Map.of("state", state, "members", found.members().size());
            case "committed":
                var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                return offsets.get(call.partition()).offset();
            case "delete_group":
                return done(admin.deleteConsumerGroups(List.of(group)).all());
            default:
                throw new UnsupportedOperationException("it has no call for this: " + call.text("do"));
        }
    }

    private static Object done(Future<?> future) throws Exception {
        future.get(WAIT_S, TimeUnit.SECONDS);
        return null;
    }

    /** A call's arguments. */
    private record Call(Map<String, Object> fields) {
        String text(String name) {
            return (String) fields.get(name);
        }

        String text(String name, String otherwise) {
            return (String) fields.getOrDefault(name, otherwise);
        }

        long number(String name, long otherwise) {
            return ((Number) fields.getOrDefault(name, otherwise)).longValue();
        }

        boolean flag(String name) {
            return (Boolean) fields.getOrDefault(name, false);
        }

        @SuppressWarnings("unchecked")
        Map<String, String> map(String name) {
            return (Map<String, String>) fields.get(name);
        }

        @SuppressWarnings("unchecked")
        List<Map<String, Object>> records() {
            return (List<Map<String, Object>>) fields.get("records");
        }

        TopicPartition partition() {
            return new TopicPartition(text("topic"), (int) number("partition", 0));
        }
    }

    /** A producer and what was sent with it. */
    private static final class Producing {
        final KafkaProducer<byte[], byte[]> producer;
        private final List<Future<RecordMetadata>> sent = new ArrayList<>();

        Producing(KafkaProducer<byte[], byte[]> producer) {
            this.producer = producer;
        }

        @SuppressWarnings("unchecked")
        Object send(Call call) {
            for (Map<String, Object> one : call.records()) {
                List<Header> headers = new ArrayList<>();
                for (List<String> pair : (List<List<String>>) one.get("headers")) {
                    headers.add(new RecordHeader(pair.get(0), raw(pair.get(1))));
                }
                Number timestamp = (Number) one.get("timestamp");
                sent.add(producer.send(new ProducerRecord<>(
                    call.text("topic"), ((Number) one.get("partition")).intValue(),
                    timestamp == null ? null : timestamp.longValue(), raw(one.get("key")), raw(one.get("value")),
                    headers)));
            }
            return null;
        }

        Object flush() throws Exception {
            producer.flush();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata found = one.get(WAIT_S, TimeUnit.SECONDS);
                offsets.add(found.hasOffset() ? found.offset() : -1);
            }
            sent.clear();
            return offsets;
        }

        Object begin() {
            producer.beginTransaction();
            sent.clear();
            return null;
        }

        Object commit() {
            producer.commitTransaction();
            return null;
        }

        Object abort() {
            producer.abortTransaction();
            return null;
        }
    }

    /** A member of a group, in a thread of its own. */
    private static final class Member implements Runnable, ConsumerRebalanceListener {
        private final String name;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final BlockingQueue<Map.Entry<String, CompletableFuture<Void>>> calls = new LinkedBlockingQueue<>();
        private Set<Integer> held;

        Member(String name, KafkaConsumer<byte[], byte[]> consumer, String topic) {
            this.name = name;
            this.consumer = consumer;
            this.topic = topic;
        }

        Object tell(String what) throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            calls.add(Map.entry(what, done));
            return done.get(WAIT_S, TimeUnit.SECONDS);
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic), this);
            while (true) {
                var records = consumer.poll(Duration.ofMillis(100));
                Set<Integer> holds = numbers(consumer.assignment());
                if (!holds.equals(held)) {
                    held = holds;
                    say(Map.of("event", "holds", "member", name, "partitions", holds));
                }
                for (ConsumerRecord<byte[], byte[]> one : records) {
                    say(Map.of("event", "record", "member", name, "partition", one.partition(), "offset", one.offset(),
                        "value", one.value() == null ? "" : text(one.value())));
                }
                var call = calls.poll();
                if (call != null) {
                    try {
                        if (call.getKey().equals("commit")) {
                            consumer.commitSync();
                        } else {
                            consumer.close();
                        }
                        call.getValue().complete(null);
                    } catch (RuntimeException failed) {
                        call.getValue().completeExceptionally(failed);
                    }
                    if (call.getKey().equals("leave")) {
                        return;
                    }
                }
            }
        }

        private static Set<Integer> numbers(Collection<TopicPartition> partitions) {
            Set<Integer> numbers = new TreeSet<>();
            partitions.forEach(one -> numbers.add(one.partition()));
            return numbers;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                say(Map.of("event", "lost", "member", name, "partitions", numbers(partitions)));
            }
        }
    }
}
