/*
 * The rows of spool files into Parquet files, by a plan that was made once.
 *
 * Runs in Spark's Java, a call for each task: `gateway/spark/commit/prepared.py` compiles it.
 * Spark's plan of some files makes the rows; each task asks it for those of other files.
 *
 * Janino compiles it: no generics, no lambdas.
 */
package gateway.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.Utils;

/** Parts of files to the name of the Parquet file that has their rows, if there are any. */
public final class Prepared implements FlatMapFunction {

    private final Broadcast made;
    private final String folder;

    /**
     * Has the rows of these *parts* written into a *folder*: the names of the files, a line
     * each.  *made* is the plan's rows, and what Parquet files are written by, serialized once.
     * One call from Python: each costs as much as some hundred rows.
     */
    public static String write(JavaSparkContext context, Broadcast made, String folder,
            Partition[] parts, Integer tasks) {
        JavaRDD each = context.parallelize(Arrays.asList((Object[]) parts), tasks.intValue());
        return String.join("\n", each.mapPartitions(new Prepared(made, folder)).collect());
    }

    private Prepared(Broadcast made, String folder) {
        this.made = made;
        this.folder = folder;
    }

    public Iterator call(Object parts) throws Exception {
        Object[] known = (Object[]) Utils.deserialize(
                (byte[]) made.value(), Thread.currentThread().getContextClassLoader());
        RDD rows = (RDD) known[0];
        OutputWriterFactory writers = (OutputWriterFactory) known[1];
        StructType schema = (StructType) known[2];
        SerializableConfiguration settings = (SerializableConfiguration) known[3];
        TaskContext task = TaskContext.get();
        TaskAttemptID attempt = new TaskAttemptID(
                "gateway", 0, TaskType.MAP, task.partitionId(), task.attemptNumber());
        TaskAttemptContextImpl context = new TaskAttemptContextImpl(settings.value(), attempt);
        String name = "part-" + task.taskAttemptId() + writers.getFileExtension(context);
        OutputWriter writer = null;
        try {
            Iterator all = (Iterator) parts;
            while (all.hasNext()) {
                scala.collection.Iterator some = rows.iterator((Partition) all.next(), task);
                while (some.hasNext()) {
                    if (writer == null) {
                        writer = writers.newInstance(folder + "/" + name, schema, context);
                    }
                    writer.write((InternalRow) some.next());
                }
            }
        } finally {
            if (writer != null) {
                writer.close();
            }
        }
        return writer == null
                ? Collections.EMPTY_LIST.iterator() : Collections.singletonList(name).iterator();
    }
}
