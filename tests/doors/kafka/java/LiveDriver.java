import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * KafkaConsumer reads partition 0 of a topic from an offset to where it has no lag: BOOTSTRAP TOPIC OFFSET RECONNECTS
 * CONFIG…. After some records it pauses, as often as told, until the node has closed the connection.
 */
public class LiveDriver {
    private static final int RECORDS = 20;

    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        for (int at = 4; at < args.length; at++) {
            String[] parts = args[at].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        TopicPartition place = new TopicPartition(args[1], 0);
        int reconnects = Integer.parseInt(args[3]);
        long got = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seek(place, Long.parseLong(args[2]));
            while (consumer.currentLag(place).orElse(-1) != 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("record " + record.offset() + " " + text(record.key()) + " " + text(record.value()));
                    got++;
                }
                if (reconnects > 0 && got > RECORDS) {
                    got = 0;
                    reconnects--;
                    consumer.pause(List.of(place));
                    double closed = closed(consumer);
                    while (closed(consumer) == closed) {
                        consumer.poll(Duration.ofMillis(100));
                    }
                    consumer.resume(List.of(place));
                    System.out.println("reconnect " + consumer.position(place) + " -");
                }
            }
            System.out.println("end " + consumer.position(place) + " "
                + consumer.endOffsets(List.of(place)).get(place));
        }
    }

    private static double closed(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.metrics().entrySet().stream()
            .filter(entry -> entry.getKey().name().equals("connection-close-total"))
            .mapToDouble(entry -> (Double) entry.getValue().metricValue())
            .sum();
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : new String(bytes, StandardCharsets.UTF_8);
    }
}
