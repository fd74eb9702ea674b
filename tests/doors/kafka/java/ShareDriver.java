import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** KafkaShareConsumer by lines on standard input; each is answered with lines, the last of which is "ok" or "error …". */
public class ShareDriver {
    private static final Map<String, ConsumerRecord<byte[], byte[]>> polled = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[1]);
        properties.put("share.acknowledgement.mode", args[3]);
        for (int at = 4; at < args.length; at++) {
            String[] parts = args[at].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            System.out.println("ok");
            for (String line = lines.readLine(); line != null && !line.equals("close"); line = lines.readLine()) {
                try {
                    run(consumer, line.split(" "));
                    System.out.println("ok");
                } catch (Exception error) {
                    System.out.println("error " + error);
                }
            }
        }
        System.out.println("ok");
    }

    private static void run(KafkaShareConsumer<byte[], byte[]> consumer, String[] words) {
        switch (words[0]) {
            case "poll" -> {
                for (ConsumerRecord<byte[], byte[]> got : consumer.poll(Duration.ofMillis(Long.parseLong(words[1])))) {
                    polled.put(got.partition() + " " + got.offset(), got);
                    String value = got.value() == null ? "-" : new String(got.value(), StandardCharsets.UTF_8);
                    System.out.println(
                        "record " + got.partition() + " " + got.offset() + " " + got.deliveryCount().orElse((short) 0)
                            + " " + value);
                }
            }
            case "say" -> consumer.acknowledge(polled.get(words[1] + " " + words[2]), AcknowledgeType.valueOf(words[3]));
            case "commit" -> consumer.commitSync(Duration.ofSeconds(20)).forEach((partition, failed) ->
                System.out.println("committed " + partition + " " + failed.map(Object::toString).orElse("-")));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
