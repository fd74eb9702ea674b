import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** KafkaProducer by lines "topic value" on standard input; each is answered with "ok" or "error …". */
public class ProducerDriver {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("max.block.ms", "5000");
        properties.put("request.timeout.ms", "4000");
        properties.put("delivery.timeout.ms", "5000");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            System.out.println("ok");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ", 2);
                try {
                    producer.send(new ProducerRecord<>(words[0], words[1])).get();
                    System.out.println("ok");
                } catch (Exception error) {
                    System.out.println("error " + error);
                }
            }
        }
    }
}
