/*
 * One pass over the rows of a batch into several tables, each by its format's own writers.
 *
 * Runs in Spark's Java, a call for each part of the rows: `gateway/spark/commit/one_pass.py`
 * compiles it.  A format gives a factory of writers for each table, as for a write of Spark
 * itself, and commits what these say that they have written.
 *
 * Janino compiles it: no generics, no lambdas.
 */
package gateway.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows to what is written of them: for each table its number, how many rows, the message. */
public final class Divide implements FlatMapFunction {

    private final int column;
    private final String[] names;
    private final DataWriterFactory[] factories;
    private final ProjectingInternalRow[] parts;

    /**
     * The table of a row is in *column*, one of *names*; of each there is a factory, and which
     * columns it has.
     */
    public Divide(Integer column, String[] names, DataWriterFactory[] factories,
            ProjectingInternalRow[] parts) {
        this.column = column.intValue();
        this.names = names;
        this.factories = factories;
        this.parts = parts;
    }

    public Iterator call(Object rows) throws Exception {
        UTF8String[] known = new UTF8String[names.length];
        for (int n = 0; n < names.length; n++) {
            known[n] = UTF8String.fromString(names[n]);
        }
        DataWriter[] writers = new DataWriter[names.length];
        long[] counts = new long[names.length];
        List written = new ArrayList();
        boolean whole = false;
        try {
            Iterator all = (Iterator) rows;
            while (all.hasNext()) {
                InternalRow row = (InternalRow) all.next();
                int n = 0;
                while (!known[n].equals(row.getUTF8String(column))) {
                    n++;
                }
                if (writers[n] == null) {
                    TaskContext task = TaskContext.get();
                    writers[n] = factories[n].createWriter(
                            task.partitionId(), task.taskAttemptId());
                }
                parts[n].project(row);
                writers[n].write(parts[n]);
                counts[n]++;
            }
            for (int n = 0; n < names.length; n++) {
                if (writers[n] != null) {
                    Object said = writers[n].commit();
                    written.add(new Object[] {
                        Integer.valueOf(n), Long.valueOf(counts[n]), said});
                }
            }
            whole = true;
        } finally {
            for (int n = 0; n < names.length; n++) {
                if (writers[n] != null) {
                    if (!whole) {
                        writers[n].abort();
                    }
                    writers[n].close();
                }
            }
        }
        return written.iterator();
    }
}
