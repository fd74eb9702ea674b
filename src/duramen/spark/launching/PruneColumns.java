import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Has batches of the format duramen read only the columns that their query takes: Spark asks sources in Python for all.
 *
 * Left as they are: scans to which filters were handed, whose reader is made already, and scans that a query has more
 * than one of, subqueries too, for those read the same records only where they share a reader. Written for Janino,
 * which knows neither generic types nor lambdas.
 */
public class PruneColumns extends Rule {
    private static final String FORMAT = "duramen";
    private static final String CHEAPEST = "partition";
    private static final String FILES = "parquetTo";

    public TreeNode apply(TreeNode plan) {
        try {
            LogicalPlan whole = (LogicalPlan) plan;
            Map readers = new HashMap();
            count(whole, readers);
            if (readers.isEmpty() || whole instanceof Subquery || !whole.subqueriesAll().isEmpty()) {
                return plan;
            }
            return pruned(whole, null, readers);
        } catch (Exception error) {
            return plan;
        } catch (LinkageError error) {
            return plan; // another version of Spark
        }
    }

    private static void count(LogicalPlan plan, Map readers) throws Exception {
        PythonScan scan = scanOf(plan);
        if (scan != null) {
            Object reader = field(scan, "ds");
            readers.put(reader, readers.containsKey(reader) ? Boolean.FALSE : Boolean.TRUE);
        }
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) {
            count((LogicalPlan) children.next(), readers);
        }
    }

    /** `taken` is what is taken of the plan's columns, null where that is all of them. */
    private static LogicalPlan pruned(LogicalPlan plan, AttributeSet taken, Map readers) throws Exception {
        PythonScan scan = scanOf(plan);
        if (scan != null) {
            return taken == null ? plan : narrowed((DataSourceV2ScanRelation) plan, scan, taken, readers);
        }
        AttributeSet below = null;
        if (plan instanceof Project || plan instanceof Aggregate) {
            below = plan.references();
        } else if (plan instanceof Filter && taken != null) {
            below = taken.$plus$plus(plan.references());
        }
        boolean changed = false;
        List made = new ArrayList();
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) {
            LogicalPlan child = (LogicalPlan) children.next();
            LogicalPlan instead = pruned(child, below, readers);
            changed |= instead != child;
            made.add(instead);
        }
        return changed ? (LogicalPlan) plan.withNewChildren(listed(made)) : plan;
    }

    private static LogicalPlan narrowed(DataSourceV2ScanRelation relation, PythonScan scan, AttributeSet taken, Map readers)
            throws Exception {
        Object reader = field(scan, "ds");
        StructField[] fields = scan.readSchema().fields();
        if (readers.get(reader) != Boolean.TRUE || ((Object[]) field(scan, "supportedFilters")).length > 0) {
            return relation;
        }
        List attributes = new ArrayList();
        List kept = new ArrayList();
        Object cheapest = null;
        int number = 0;
        scala.collection.Iterator output = relation.output().iterator();
        while (output.hasNext()) {
            Attribute attribute = (Attribute) output.next();
            if (taken.contains(attribute)) {
                attributes.add(attribute);
                kept.add(fields[number]);
            } else if (attribute.name().equals(CHEAPEST)) {
                cheapest = attribute;
            }
            number++;
        }
        if (number != fields.length || number == 1 || kept.size() == number || kept.isEmpty() && cheapest == null) {
            return relation;
        }
        if (kept.isEmpty()) {
            // How many records there are is seen of any column.
            attributes.add(cheapest);
            kept.add(scan.readSchema().apply(CHEAPEST));
        }
        StructType schema = new StructType((StructField[]) kept.toArray(new StructField[kept.size()]));
        // A reader of its own: one keeps what was planned with other columns.
        PythonDataSourceV2 other = new PythonDataSourceV2();
        other.setShortName(FORMAT);
        accessible(PythonDataSourceV2.class, "dataSourceInPython").set(other, field(reader, "dataSourceInPython"));
        Object[] parts = new Object[relation.productArity()];
        for (int place = 0; place < parts.length; place++) {
            Object part = relation.productElement(place);
            if (part == scan) {
                CaseInsensitiveStringMap options = (CaseInsensitiveStringMap) field(scan, "options");
                part = new PythonScan(other, FORMAT, schema, options, new org.apache.spark.sql.sources.Filter[0]);
            } else if (part == relation.output()) {
                part = listed(attributes);
            }
            parts[place] = part;
        }
        return (LogicalPlan) relation.makeCopy(parts);
    }

    private static PythonScan scanOf(LogicalPlan plan) throws Exception {
        if (!(plan instanceof DataSourceV2ScanRelation)) {
            return null;
        }
        Object scan = ((DataSourceV2ScanRelation) plan).scan();
        if (!(scan instanceof PythonScan) || !FORMAT.equalsIgnoreCase((String) field(scan, "shortName"))) {
            return null;
        }
        // Rows that are names of files are no records.
        String files = ((CaseInsensitiveStringMap) field(scan, "options")).get(FILES);
        return files == null || files.isEmpty() ? (PythonScan) scan : null;
    }

    private static Object field(Object of, String name) throws Exception {
        return accessible(of.getClass(), name).get(of);
    }

    private static Field accessible(Class of, String name) throws Exception {
        Field found = of.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    private static scala.collection.immutable.Seq listed(List of) {
        return scala.jdk.javaapi.CollectionConverters.asScala(of).toSeq();
    }
}
