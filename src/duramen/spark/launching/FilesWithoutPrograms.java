import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local disk with permissions that Java sets: without its native library Hadoop starts a program, `chmod`, for each
 * file that it makes, and a micro-batch makes two.
 */
public class FilesWithoutPrograms extends RawLocalFileSystem {
    private static final int ORDINARY = 0777;

    public void setPermission(Path path, FsPermission permission) throws IOException {
        if ((permission.toShort() & ~ORDINARY) != 0) {
            super.setPermission(path, permission);
            return;
        }
        try {
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        } catch (UnsupportedOperationException error) {
            super.setPermission(path, permission); // a disk that has no such permissions, as on Windows
        }
    }

    /** Have this one do the work of `local`, the one that a Java has. */
    public void replaceIn(LocalFileSystem local) throws Exception {
        initialize(local.getUri(), local.getConf());
        Field raw = FilterFileSystem.class.getDeclaredField("fs");
        raw.setAccessible(true);
        raw.set(local, this);
    }
}
