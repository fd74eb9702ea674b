import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Gives the streaming sources of a query a description and metrics in its progress: sources in Python have neither.
 *
 * Each wrapper passes every call on to the object that Spark made. Written for Janino, which knows neither generic types
 * nor lambdas.
 */
public class DescribedSources {
    /** Describe the source of a relation whose query has not been planned yet. */
    public void describe(StreamingRelationV2 relation, String description) throws Exception {
        if (relation.table() instanceof DescribedTable) {
            return;
        }
        Field table = StreamingRelationV2.class.getDeclaredField("table");
        table.setAccessible(true);
        table.set(relation, new DescribedTable((SupportsRead) relation.table(), description));
    }
}

class DescribedTable implements SupportsRead {
    private final SupportsRead table;
    private final String description;

    DescribedTable(SupportsRead table, String description) {
        this.table = table;
        this.description = description;
    }

    public String name() {
        return table.name();
    }

    public StructType schema() {
        return table.schema();
    }

    public Set capabilities() {
        return table.capabilities();
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new DescribedScan(table.newScanBuilder(options).build(), description);
    }
}

class DescribedScan implements ScanBuilder, Scan {
    private final Scan scan;
    private final String description;

    DescribedScan(Scan scan, String description) {
        this.scan = scan;
        this.description = description;
    }

    public Scan build() {
        return this;
    }

    public StructType readSchema() {
        return scan.readSchema();
    }

    public String description() {
        return description;
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
        return scan.columnarSupportMode();
    }

    public org.apache.spark.sql.connector.metric.CustomMetric[] supportedCustomMetrics() {
        return scan.supportedCustomMetrics();
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        MicroBatchStream stream = scan.toMicroBatchStream(checkpoint);
        // What only refuses has neither.
        return stream instanceof SupportsTriggerAvailableNow ? new DescribedStream(stream, description) : stream;
    }
}

class DescribedStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final MicroBatchStream stream;
    private final SupportsTriggerAvailableNow limited;
    private final String description;

    DescribedStream(MicroBatchStream stream, String description) {
        this.stream = stream;
        this.limited = (SupportsTriggerAvailableNow) stream;
        this.description = description;
    }

    public String toString() {
        return description;
    }

    /** By how many offsets the partitions are behind their ends, as Spark's Kafka source calls it. */
    public Map metrics(Optional consumed) {
        Map found = new HashMap();
        Offset latest = reportLatestOffset();
        if (latest == null || !consumed.isPresent()) {
            return found;
        }
        try {
            JsonNode reached = (JsonNode) JSON.readTree(((Offset) consumed.get()).json());
            add(found, reached, (JsonNode) JSON.readTree(latest.json()));
        } catch (java.io.IOException error) {
            return new HashMap(); // offsets of another version
        }
        return found;
    }

    private static void add(Map found, JsonNode consumed, JsonNode latest) {
        long partitions = 0;
        long sum = 0;
        long min = Long.MAX_VALUE;
        long max = 0;
        Iterator topics = latest.fieldNames();
        while (topics.hasNext()) {
            String topic = (String) topics.next();
            JsonNode ends = at(latest, topic);
            Iterator names = ends.fieldNames();
            while (names.hasNext()) {
                String name = (String) names.next();
                JsonNode end = at(ends, name);
                JsonNode reached = at(at(consumed, topic), name);
                if (!end.isIntegralNumber() || !reached.isIntegralNumber()) {
                    continue; // the stream's id, or a partition of which nothing has been read
                }
                long behind = Math.max(0, end.longValue() - reached.longValue());
                partitions++;
                sum += behind;
                min = Math.min(min, behind);
                max = Math.max(max, behind);
            }
        }
        if (partitions > 0) {
            found.put("minOffsetsBehindLatest", String.valueOf(min));
            found.put("maxOffsetsBehindLatest", String.valueOf(max));
            found.put("avgOffsetsBehindLatest", String.valueOf((double) sum / partitions));
        }
    }

    /** Janino takes the method of the superclass, which returns another type. */
    private static JsonNode at(JsonNode node, String name) {
        return (JsonNode) node.path(name);
    }

    public Offset latestOffset() {
        return stream.latestOffset();
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        return limited.latestOffset(start, limit);
    }

    public ReadLimit getDefaultReadLimit() {
        return limited.getDefaultReadLimit();
    }

    public Offset reportLatestOffset() {
        return limited.reportLatestOffset();
    }

    public void prepareForTriggerAvailableNow() {
        limited.prepareForTriggerAvailableNow();
    }

    public Offset initialOffset() {
        return stream.initialOffset();
    }

    public Offset deserializeOffset(String json) {
        return stream.deserializeOffset(json);
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return stream.planInputPartitions(start, end);
    }

    public PartitionReaderFactory createReaderFactory() {
        return stream.createReaderFactory();
    }

    public void commit(Offset end) {
        stream.commit(end);
    }

    public void stop() {
        stream.stop();
    }
}
