/*
 * The rows of spool files into Parquet files, by a plan that was made once.
 *
 * Runs in Spark's Java, a call for each task: `gateway/spark/commit/prepared.py` compiles it.
 * Spark's plan of some files makes the rows; each task asks it for those of other files.
 *
 * Janino compiles it: no generics, no lambdas.  What Spark gets is no closure, either: it would
 * read classes at each batch, to find what that takes along.
 */
package gateway.spark;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.Utils;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** Parts of files to the name of the Parquet file that has their rows; null: there are none. */
public final class Prepared extends AbstractFunction2 implements Serializable {

    private final Broadcast made;
    private final String folder;

    private Prepared(Broadcast made, String folder) {
        this.made = made;
        this.folder = folder;
    }

    /**
     * Has the rows of these *parts* written into a *folder*: the names of the files, a line
     * each.  *made* is the plan's rows, and what Parquet files are written by, serialized once.
     * It is one call from Python, each of which costs as much as some hundred rows.
     */
    public static String write(JavaSparkContext context, Broadcast made, String folder,
            Partition[] parts, Integer tasks) {
        JavaRDD each = context.parallelize(Arrays.asList((Object[]) parts), tasks.intValue());
        Names names = new Names();
        context.sc().runJob(each.rdd(), new Prepared(made, folder),
                scala.collection.immutable.Range$.MODULE$.apply(0, tasks.intValue()),
                names, ClassTag$.MODULE$.apply(String.class));
        return String.join("\n", names.all);
    }

    /** What tasks have said. */
    private static final class Names extends AbstractFunction2 {

        final List all = new ArrayList();

        public Object apply(Object number, Object name) {
            if (name != null) {
                all.add(name);
            }
            return BoxedUnit.UNIT;
        }
    }

    public Object apply(Object task, Object parts) {
        Plan plan = Plan.borrow(made);
        String name = plan.write((TaskContext) task, (Iterator) parts, folder);
        plan.giveBack(made);
        return name;
    }

    /** A plan that Java has made of what was sent, for one task at a time. */
    private static final class Plan {

        private static final Deque SPARE = new ArrayDeque();
        /** The number of the broadcast whose plans are spare; -1: there was none. */
        private static long newest = -1;

        private final RDD rows;
        private final OutputWriterFactory writers;
        private final StructType schema;
        private final JobConf settings;

        private Plan(Object[] sent) {
            rows = (RDD) sent[0];
            writers = (OutputWriterFactory) sent[1];
            schema = (StructType) sent[2];
            settings = new JobConf(((SerializableConfiguration) sent[3]).value());
        }

        /** One that no task uses, or else a new one: that takes longer than a small batch. */
        static Plan borrow(Broadcast made) {
            synchronized (SPARE) {
                if (made.id() == newest && !SPARE.isEmpty()) {
                    return (Plan) SPARE.removeLast();
                }
            }
            return new Plan((Object[]) Utils.deserialize(
                    (byte[]) made.value(), Thread.currentThread().getContextClassLoader()));
        }

        /** Another task may use it from now on. */
        void giveBack(Broadcast made) {
            synchronized (SPARE) {
                if (made.id() > newest) {
                    SPARE.clear();
                    newest = made.id();
                }
                if (made.id() == newest) {
                    SPARE.addLast(this);
                }
            }
        }

        String write(TaskContext task, Iterator parts, String folder) {
            TaskAttemptID attempt = new TaskAttemptID(
                    "gateway", 0, TaskType.MAP, task.partitionId(), task.attemptNumber());
            TaskAttemptContextImpl context = new TaskAttemptContextImpl(settings, attempt);
            String name = "part-" + task.taskAttemptId() + writers.getFileExtension(context);
            OutputWriter writer = null;
            try {
                while (parts.hasNext()) {
                    Iterator some = rows.iterator((Partition) parts.next(), task);
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
            return writer == null ? null : name;
        }
    }
}
