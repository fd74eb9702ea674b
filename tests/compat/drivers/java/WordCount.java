import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts words exactly once: `WordCount ADDRESS DIRECTORY INPUT OUTPUT`. It says "running", and runs until it is killed. */
public final class WordCount {
    private WordCount() {
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("application.id", arguments[2] + "-app");
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("state.dir", arguments[1]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("replication.factor", "1");
        properties.put("commit.interval.ms", "100");
        properties.put("num.stream.threads", "1");
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "3000");
        properties.put("heartbeat.interval.ms", "500");
        properties.put("metadata.max.age.ms", "1000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
                System.out.flush();
            }
        });
        streams.start();
    }
}
