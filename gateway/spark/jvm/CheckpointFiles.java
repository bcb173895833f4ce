/*
 * The files of a query's checkpoint, of this machine's disk, without a program for each.
 *
 * Hadoop starts `chmod` for each file that it makes, and for the checksums beside it: six
 * programs a batch.  `gateway/spark/jvm/checkpoint_files.py` compiles it.
 *
 * Janino compiles it: no generics, no lambdas.
 */
package gateway.spark;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/** Spark's own, but for how a file is made. */
public final class CheckpointFiles extends FileSystemBasedCheckpointFileManager {

    private final String permissions;

    public CheckpointFiles(Path path, Configuration settings) {
        super(path, settings);
        FsPermission all = FsPermission.getFileDefault();
        permissions = all.applyUMask(FsPermission.getUMask(settings)).toString();
    }

    public FSDataOutputStream createTempFile(Path path) {
        try {
            java.nio.file.Path made = Paths.get(path.toUri().getPath(), new String[0]);
            OpenOption[] anew = {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE};
            // Spark writes a log line by line.
            FSDataOutputStream file = new FSDataOutputStream(
                    new BufferedOutputStream(Files.newOutputStream(made, anew)), null);
            Files.setPosixFilePermissions(made, PosixFilePermissions.fromString(permissions));
            return file;
        } catch (IOException why) {
            throw new UncheckedIOException(why);
        }
    }
}
