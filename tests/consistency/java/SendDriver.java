// Java's KafkaProducer, as it is. Arguments: the bootstrap servers and a topic. A line on standard input has partitions
// and values, `0:17 1:18`; the answer is one line with the offset of each, -1 where it was not delivered. The first line
// on standard output says that it is ready and knows the topic.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class SendDriver {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.idempotence", "true");
        settings.put("batch.size", "0");
        settings.put("linger.ms", "0");
        settings.put("retry.backoff.ms", "20");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.partitionsFor(arguments[1]);
            System.out.println("ready");
            System.out.flush();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                List<Future<RecordMetadata>> futures = new ArrayList<>();
                for (String word : line.split(" ")) {
                    String[] parts = word.split(":");
                    futures.add(producer.send(
                        new ProducerRecord<>(arguments[1], Integer.parseInt(parts[0]), (String) null, parts[1])));
                }
                StringBuilder answer = new StringBuilder();
                for (Future<RecordMetadata> future : futures) {
                    try {
                        answer.append(future.get().offset()).append(' ');
                    } catch (ExecutionException failed) {
                        answer.append("-1 ");
                    }
                }
                System.out.println(answer);
                System.out.flush();
            }
        }
    }
}
