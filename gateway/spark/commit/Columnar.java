/*
 * Rows into a Parquet file, each column into pages of its own.
 *
 * Runs in Spark's tasks (`Prepared.java`).  parquet-java takes a value by eight calls, hashes it
 * for a dictionary, compares it twice, and keeps an object of it; that was half of what a row
 * cost.  Here a value is copied to where its page grows, one that is the same as in the row
 * before is a number, and a null costs nothing.  Pages are parquet-java's from there: they are
 * compressed, summed, and put into the file by it.  So are the levels and bytes of columns that
 * are no texts and no whole numbers, which Spark's own writer gets.
 *
 * Janino compiles it: no generics, no lambdas.
 */
package gateway.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.parquet.bytes.BytesInput;
import org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ColumnWriteStore;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.column.page.DictionaryPage;
import org.apache.parquet.column.page.PageWriter;
import org.apache.parquet.column.statistics.SizeStatistics;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.column.values.rle.RunLengthBitPackingHybridEncoder;
import org.apache.parquet.compression.CompressionCodecFactory;
import org.apache.parquet.hadoop.CodecFactory;
import org.apache.parquet.hadoop.ColumnChunkPageWriteStore;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.types.UTF8String;

/** A Parquet file that is being written: rows until it is closed. */
public final class Columnar extends OutputWriter {

    /** Makes such files, as Spark's own factory makes its writers. */
    public static final class Factory extends OutputWriterFactory {

        public String getFileExtension(TaskAttemptContext context) {
            return ParquetOutputFormat.getCompression(context.getConfiguration()).getExtension()
                    + ".parquet";
        }

        public OutputWriter newInstance(
                String path, StructType schema, TaskAttemptContext context) {
            try {
                return new Columnar(context.getConfiguration(), schema, path);
            } catch (IOException why) {
                throw new UncheckedIOException(why);
            }
        }
    }

    /** Rows, and bytes that they added, after which a file looks whether pages or groups are full. */
    private static final int LOOK_ROWS = 1000;
    private static final int LOOK_BYTES = 1 << 20;

    private final String path;
    private final MessageType message;
    private final Map metadata;
    private final ParquetFileWriter file;
    private final CodecFactory codecs;
    private final CompressionCodecFactory.BytesInputCompressor compressor;
    private final boolean checksums;
    private final int truncated;
    private final long groupBytes;
    /** Rows after which it looks: a page has no more of them than it may. */
    private final int lookRows;

    private final Column[] columns;
    private final Others others;

    private ColumnChunkPageWriteStore pages;
    /** Whether it is no file of Parquet and will be none; the reason is what was thrown. */
    private boolean failed;
    private int rows;
    private int looked;
    private long added;

    /** *settings* are those that Spark gives to its own writer of rows of this *schema*. */
    Columnar(Configuration settings, StructType schema, String path) throws IOException {
        this.path = path;
        WriteSupport.WriteContext context = new ParquetWriteSupport().init(settings);
        message = context.getSchema();
        metadata = context.getExtraMetaData();
        int pageBytes = ParquetOutputFormat.getPageSize(settings);
        int pageRows = settings.getInt(ParquetOutputFormat.PAGE_ROW_COUNT_LIMIT,
                ParquetProperties.DEFAULT_PAGE_ROW_COUNT_LIMIT);
        lookRows = Math.max(1, Math.min(LOOK_ROWS, pageRows));
        int dictionaryBytes = ParquetOutputFormat.getDictionaryPageSize(settings);
        boolean dictionaries = ParquetOutputFormat.getEnableDictionary(settings);
        truncated = settings.getInt(ParquetOutputFormat.COLUMN_INDEX_TRUNCATE_LENGTH,
                ParquetProperties.DEFAULT_COLUMN_INDEX_TRUNCATE_LENGTH);
        checksums = ParquetOutputFormat.getPageWriteChecksumEnabled(settings);
        groupBytes = ParquetOutputFormat.getLongBlockSize(settings);
        List mine = new ArrayList();
        List rest = new ArrayList();
        for (int n = 0; n < schema.length(); n++) {
            StructField field = schema.fields()[n];
            boolean dictionary = settings.getBoolean(
                    ParquetOutputFormat.ENABLE_DICTIONARY + "#" + field.name(), dictionaries);
            Column made = null;
            if (message.getType(n).isPrimitive()) {
                made = column(
                        field.dataType(), message.getColumnDescription(new String[] {field.name()}),
                        n, pageRows, pageBytes, dictionary ? dictionaryBytes : 0);
            }
            if (made == null) {
                rest.add(Integer.valueOf(n));
            } else {
                mine.add(made);
            }
        }
        columns = (Column[]) mine.toArray(new Column[0]);
        others = rest.isEmpty() ? null
                : new Others(settings, schema, rest, pageBytes, pageRows, dictionaryBytes,
                        dictionaries);
        codecs = new CodecFactory(settings, pageBytes);
        compressor = codecs.getCompressor(ParquetOutputFormat.getCompression(settings));
        // Hadoop would start the program `chmod` for it, and for checksums beside it.
        java.nio.file.Path made = Paths.get(new Path(path).toUri().getPath(), new String[0]);
        Files.createDirectories(made.getParent(), new FileAttribute[0]);
        file = new ParquetFileWriter(new LocalOutputFile(made), message,
                ParquetFileWriter.Mode.OVERWRITE, groupBytes, 0, truncated,
                settings.getInt(ParquetOutputFormat.STATISTICS_TRUNCATE_LENGTH,
                        ParquetProperties.DEFAULT_STATISTICS_TRUNCATE_LENGTH), checksums);
        boolean begun = false;
        try {
            FsPermission all = FsPermission.getFileDefault();
            Files.setPosixFilePermissions(made, PosixFilePermissions.fromString(
                    all.applyUMask(FsPermission.getUMask(settings)).toString()));
            file.start();
            begin();
            begun = true;
        } finally {
            if (!begun) {
                file.close();
                codecs.release();
            }
        }
    }

    /** The column for values of this *type*; null: Spark's own writer gets them. */
    private static Column column(DataType type, ColumnDescriptor column, int place,
            int pageRows, int pageBytes, int dictionaryBytes) {
        PrimitiveType.PrimitiveTypeName name = column.getPrimitiveType().getPrimitiveTypeName();
        if (name == PrimitiveType.PrimitiveTypeName.BINARY) {
            if (type instanceof StringType || type instanceof BinaryType) {
                return new Texts(column, type instanceof BinaryType,
                        place, pageRows, pageBytes, dictionaryBytes);
            }
        } else if (name == PrimitiveType.PrimitiveTypeName.INT64) {
            if (type instanceof LongType || type instanceof TimestampType) {
                return new Numbers(column, 8, place, pageRows, pageBytes, dictionaryBytes);
            }
        } else if (name == PrimitiveType.PrimitiveTypeName.INT32) {
            if (type instanceof IntegerType || type instanceof DateType) {
                return new Numbers(column, 4, place, pageRows, pageBytes, dictionaryBytes);
            }
        }
        return null;
    }

    public String path() {
        return path;
    }

    public void write(InternalRow row) {
        failed = true;
        try {
            for (int n = 0; n < columns.length; n++) {
                if (!row.isNullAt(columns[n].place)) {
                    added += columns[n].add(row, rows);
                }
            }
            if (others != null) {
                others.write(row);
            }
            rows++;
            if (added >= LOOK_BYTES || rows - looked == lookRows) {
                look();
            }
            failed = false;
        } catch (IOException why) {
            throw new UncheckedIOException(why);
        }
    }

    /** End pages that must not grow further, and a group of rows that has its size. */
    private void look() throws IOException {
        long held = others == null ? 0 : others.held();
        for (int n = 0; n < columns.length; n++) {
            columns[n].look(rows);
            held += columns[n].held();
        }
        looked = rows;
        added = 0;
        if (held >= groupBytes) {
            end();
            begin();
        }
    }

    private void begin() {
        pages = new ColumnChunkPageWriteStore(
                compressor, message, new HeapByteBufferAllocator(), truncated, checksums);
        for (int n = 0; n < columns.length; n++) {
            columns[n].begin(pages.getPageWriter(columns[n].descriptor));
        }
        if (others != null) {
            others.begin(pages);
        }
        rows = 0;
        looked = 0;
        added = 0;
    }

    private void end() throws IOException {
        for (int n = 0; n < columns.length; n++) {
            columns[n].end(rows);
        }
        if (others != null) {
            others.end();
        }
        if (rows > 0) {
            file.startBlock(rows);
            pages.flushToFileWriter(file);
            file.endBlock();
        }
        pages.close();
    }

    public void close() {
        try {
            try {
                if (!failed) {
                    end();
                    file.end(metadata);
                }
            } finally {
                file.close();
                codecs.release();
            }
        } catch (IOException why) {
            throw new UncheckedIOException(why);
        }
    }

    /** A column whose values are put into pages here. */
    private abstract static class Column {

        final ColumnDescriptor descriptor;
        final int dictionaryBytes;
        private final boolean nullable;
        /** Where its values are in a row. */
        final int place;
        private final int pageRows;
        final int pageBytes;

        PageWriter pages;
        /** Which rows of the page have a value, a bit each. */
        private long[] there = new long[LOOK_ROWS / 64 + 1];
        private int first;
        int count;

        /** Values as they are in a page: plain, from the first one on that is. */
        byte[] plain = new byte[1024];
        int size;
        /** Values by their number in the dictionary; null: there is none any more. */
        int[] numbers;
        int page;

        /** Entries of the dictionary, and their numbers plus one by their hash. */
        int entries;
        int[] table = new int[64];
        /** The entry of the value before; -1: there was none. */
        int last;

        Column(ColumnDescriptor descriptor, int place, int pageRows, int pageBytes,
                int dictionaryBytes) {
            this.descriptor = descriptor;
            this.place = place;
            this.pageRows = pageRows;
            this.pageBytes = pageBytes;
            this.dictionaryBytes = dictionaryBytes;
            this.nullable = descriptor.getMaxDefinitionLevel() > 0;
        }

        /** The bytes of a row's value. */
        abstract int add(InternalRow row, int number) throws IOException;

        /** Bytes that the values of the dictionary have; none without one. */
        abstract int dictionarySize();

        abstract BytesInput dictionary();

        /** A hash of an entry. */
        abstract int hashOf(int entry);

        /** The next entry, which hashes to this place of the table. */
        final int enter(int at) {
            table[at] = ++entries;
            if (entries * 2 > table.length) {
                table = new int[table.length * 4];
                int mask = table.length - 1;
                for (int entry = 0; entry < entries; entry++) {
                    int free = hashOf(entry) & mask;
                    while (table[free] != 0) {
                        free = free + 1 & mask;
                    }
                    table[free] = entry + 1;
                }
            }
            return entries - 1;
        }

        void forget() {
            entries = 0;
            last = -1;
            Arrays.fill(table, 0);
        }

        /** The numbers of this page as plain values. */
        abstract void spell();

        /** Bytes that they would have. */
        abstract long spelled();

        /** The least and the greatest value of the page. */
        abstract void extremes(Statistics found);

        void begin(PageWriter writer) {
            pages = writer;
            numbers = dictionaryBytes > 0 ? new int[1024] : null;
            forget();
            first = 0;
            page = 0;
            clear();
        }

        void clear() {
            Arrays.fill(there, 0L);
            count = 0;
            size = 0;
            page++;
        }

        void mark(int row) {
            int at = row - first;
            if (at >> 6 >= there.length) {
                there = Arrays.copyOf(there, (at >> 6) * 2);
            }
            there[at >> 6] |= 1L << at;
            count++;
        }

        final void number(int value) {
            if (count > numbers.length) {
                numbers = Arrays.copyOf(numbers, numbers.length * 2);
            }
            numbers[count - 1] = value;
        }

        final void room(int more) {
            if (plain.length - size < more) {
                plain = Arrays.copyOf(plain, Math.max(plain.length * 2, size + more));
            }
        }

        long held() {
            return size + pages.getMemSize() + dictionarySize()
                    + (numbers == null ? 0 : 2L * count);
        }

        /** End the page if it may be full before the next look, or a dictionary that is too much. */
        void look(int rows) throws IOException {
            boolean large = numbers != null && dictionarySize() > dictionaryBytes;
            if (large || size >= pageBytes || rows - first > pageRows - LOOK_ROWS || differs()) {
                flush(rows);
            }
            if (large) {
                numbers = null;
            }
        }

        /** Whether nearly each of the first values is another one. */
        private boolean differs() {
            return numbers != null && page == 1 && count >= LOOK_ROWS / 2
                    && entries > count - count / 8;
        }

        void flush(int rows) throws IOException {
            int all = rows - first;
            if (all == 0) {
                return;
            }
            Statistics found = Statistics.createStats(descriptor.getPrimitiveType());
            found.setNumNulls(all - count);
            if (count > 0) {
                extremes(found);
            }
            BytesInput values;
            Encoding encoding = Encoding.PLAIN;
            if (numbers != null && page == 1 && !pays()) {
                spell();
                numbers = null;
                forget();
            }
            if (numbers == null) {
                values = BytesInput.from(plain, 0, size);
            } else {
                encoding = Encoding.PLAIN_DICTIONARY;
                int width = width();
                values = BytesInput.concat(new BytesInput[] {
                    BytesInput.from(new byte[] {(byte) width}), packed(width)
                });
            }
            BytesInput[] parts = new BytesInput[] {levels(all), values};
            SizeStatistics sizes = SizeStatistics.noopBuilder(
                    descriptor.getPrimitiveType(), 0, descriptor.getMaxDefinitionLevel()).build();
            pages.writePage(BytesInput.concat(parts), all, all, found, sizes, null,
                    Encoding.BIT_PACKED, nullable ? Encoding.RLE : Encoding.BIT_PACKED, encoding);
            first = rows;
            clear();
        }

        private boolean pays() {
            return dictionarySize() + (long) count * Math.max(1, width()) / 8 < spelled();
        }

        /** The bits of an entry's number; none where all are one. */
        private int width() {
            return 32 - Integer.numberOfLeadingZeros(Math.max(0, entries - 1));
        }

        private BytesInput packed(int width) throws IOException {
            RunLengthBitPackingHybridEncoder encoder = encoder(width);
            for (int n = 0; n < count; n++) {
                encoder.writeInt(numbers[n]);
            }
            return encoder.toBytes();
        }

        private static RunLengthBitPackingHybridEncoder encoder(int width) {
            return new RunLengthBitPackingHybridEncoder(
                    width, 64, 1 << 20, new HeapByteBufferAllocator());
        }

        /** For each row whether it has a value; of the same for all of them one run is enough. */
        private BytesInput levels(int all) throws IOException {
            if (!nullable) {
                return BytesInput.empty();
            }
            BytesInput found;
            if (count == 0 || count == all) {
                found = BytesInput.concat(new BytesInput[] {
                    BytesInput.fromUnsignedVarInt(all << 1),
                    BytesInput.from(new byte[] {(byte) (count == 0 ? 0 : 1)})
                });
            } else {
                RunLengthBitPackingHybridEncoder encoder = encoder(1);
                long[] bits = Arrays.copyOf(there, (all >> 6) + 1); // none behind the last value
                for (int n = 0; n < all; n++) {
                    encoder.writeInt((int) (bits[n >> 6] >>> n) & 1);
                }
                found = encoder.toBytes();
            }
            return BytesInput.concat(new BytesInput[] {
                BytesInput.fromInt((int) found.size()), found
            });
        }

        void end(int rows) throws IOException {
            flush(rows);
            if (entries > 0) {
                pages.writeDictionaryPage(new DictionaryPage(
                        dictionary(), entries, Encoding.PLAIN_DICTIONARY));
            }
        }
    }

    /** Texts and bytes: in a page each has its length before it, in four bytes. */
    private static final class Texts extends Column {

        private final boolean binary;
        /** The dictionary: its values as a page has them, where each begins, what it hashes to. */
        private byte[] words = new byte[0];
        private int wordsSize;
        private int[] begins = new int[16];
        private long[] hashes = new long[16];
        /** The page that an entry was seen in last. */
        private int[] seen = new int[16];
        private long spelled;

        /** Where they are in the dictionary, or in the page without one; the first is -1 at first. */
        private int least;
        private int greatest;

        Texts(ColumnDescriptor descriptor, boolean binary, int place, int pageRows,
                int pageBytes, int dictionaryBytes) {
            super(descriptor, place, pageRows, pageBytes, dictionaryBytes);
            this.binary = binary;
        }

        int add(InternalRow row, int number) throws IOException {
            Object base;
            long from;
            int length;
            if (binary) {
                byte[] bytes = row.getBinary(place);
                base = bytes;
                from = Platform.BYTE_ARRAY_OFFSET;
                length = bytes.length;
            } else {
                UTF8String text = row.getUTF8String(place);
                base = text.getBaseObject();
                from = text.getBaseOffset();
                length = text.numBytes();
            }
            mark(number);
            if (numbers != null) {
                spelled += 4 + length;
                int before = wordsSize;
                int word = last >= 0 && same(last, base, from, length)
                        ? last : word(base, from, length);
                number(word);
                last = word;
                if (seen[word] != page) {
                    seen[word] = page;
                    compare(words, begins[word]);
                }
                return 4 + wordsSize - before;
            }
            room(4 + length);
            int at = size;
            put(plain, at, length);
            Platform.copyMemory(base, from, plain, Platform.BYTE_ARRAY_OFFSET + at + 4, length);
            size += 4 + length;
            compare(plain, at);
            if (size >= pageBytes) {
                flush(number + 1);
            }
            return 4 + length;
        }

        private boolean same(int word, Object base, long from, int length) {
            int at = begins[word];
            return length(words, at) == length && ByteArrayMethods.arrayEquals(
                    base, from, words, Platform.BYTE_ARRAY_OFFSET + at + 4, length);
        }

        private int word(Object base, long from, int length) {
            long hash = XXH64.hashUnsafeBytes(base, from, length, 42L);
            int mask = table.length - 1;
            int at = (int) hash & mask;
            while (table[at] != 0) {
                int word = table[at] - 1;
                if (hashes[word] == hash && same(word, base, from, length)) {
                    return word;
                }
                at = at + 1 & mask;
            }
            if (entries == begins.length) {
                begins = Arrays.copyOf(begins, entries * 2);
                hashes = Arrays.copyOf(hashes, entries * 2);
                seen = Arrays.copyOf(seen, entries * 2);
            }
            if (words.length - wordsSize < 4 + length) {
                words = Arrays.copyOf(words, Math.max(words.length * 2, wordsSize + 4 + length));
            }
            put(words, wordsSize, length);
            Platform.copyMemory(
                    base, from, words, Platform.BYTE_ARRAY_OFFSET + wordsSize + 4, length);
            begins[entries] = wordsSize;
            hashes[entries] = hash;
            seen[entries] = 0;
            wordsSize += 4 + length;
            return enter(at);
        }

        int hashOf(int entry) {
            return (int) hashes[entry];
        }

        private static void put(byte[] bytes, int at, int length) {
            bytes[at] = (byte) length;
            bytes[at + 1] = (byte) (length >> 8);
            bytes[at + 2] = (byte) (length >> 16);
            bytes[at + 3] = (byte) (length >> 24);
        }

        private static int length(byte[] bytes, int at) {
            return bytes[at] & 255 | (bytes[at + 1] & 255) << 8
                    | (bytes[at + 2] & 255) << 16 | bytes[at + 3] << 24;
        }

        private void compare(byte[] bytes, int at) {
            if (least < 0) {
                least = at;
                greatest = at;
                return;
            }
            if (order(bytes, at, least) < 0) {
                least = at;
            } else if (order(bytes, at, greatest) > 0) {
                greatest = at;
            }
        }

        private static int order(byte[] bytes, int one, int other) {
            return Arrays.compareUnsigned(
                    bytes, one + 4, one + 4 + length(bytes, one),
                    bytes, other + 4, other + 4 + length(bytes, other));
        }

        void extremes(Statistics found) {
            byte[] bytes = numbers == null ? plain : words;
            found.updateStats(value(bytes, least));
            found.updateStats(value(bytes, greatest));
        }

        private static Binary value(byte[] bytes, int at) {
            return Binary.fromConstantByteArray(
                    Arrays.copyOfRange(bytes, at + 4, at + 4 + length(bytes, at)));
        }

        void clear() {
            super.clear();
            least = -1;
            spelled = 0;
        }

        long spelled() {
            return spelled;
        }

        void spell() {
            size = 0;
            room((int) spelled);
            for (int n = 0; n < count; n++) {
                int at = begins[numbers[n]];
                int bytes = 4 + length(words, at);
                System.arraycopy(words, at, plain, size, bytes);
                size += bytes;
            }
        }

        int dictionarySize() {
            return wordsSize;
        }

        BytesInput dictionary() {
            return BytesInput.from(words, 0, wordsSize);
        }

        void forget() {
            super.forget();
            wordsSize = 0;
        }
    }

    /** Whole numbers, days and instants, of four or eight bytes. */
    private static final class Numbers extends Column {

        private final int width;
        private long[] words = new long[16];
        private long least;
        private long greatest;

        Numbers(ColumnDescriptor descriptor, int width, int place, int pageRows,
                int pageBytes, int dictionaryBytes) {
            super(descriptor, place, pageRows, pageBytes, dictionaryBytes);
            this.width = width;
        }

        int add(InternalRow row, int number) {
            long value = width == 8 ? row.getLong(place) : row.getInt(place);
            mark(number);
            if (numbers != null) {
                int word = last >= 0 && words[last] == value ? last : word(value);
                number(word);
                last = word;
            } else {
                room(width);
                put(value);
            }
            if (value < least) {
                least = value;
            }
            if (value > greatest) {
                greatest = value;
            }
            return width;
        }

        private void put(long value) {
            boolean little = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
            if (width == 8) {
                Platform.putLong(plain, Platform.BYTE_ARRAY_OFFSET + size,
                        little ? value : Long.reverseBytes(value));
            } else {
                Platform.putInt(plain, Platform.BYTE_ARRAY_OFFSET + size,
                        little ? (int) value : Integer.reverseBytes((int) value));
            }
            size += width;
        }

        private static int hash(long value) {
            return (int) (value * 0x9E3779B97F4A7C15L >>> 32);
        }

        private int word(long value) {
            int mask = table.length - 1;
            int at = hash(value) & mask;
            while (table[at] != 0) {
                if (words[table[at] - 1] == value) {
                    return table[at] - 1;
                }
                at = at + 1 & mask;
            }
            if (entries == words.length) {
                words = Arrays.copyOf(words, entries * 2);
            }
            words[entries] = value;
            return enter(at);
        }

        int hashOf(int entry) {
            return hash(words[entry]);
        }

        void extremes(Statistics found) {
            if (width == 8) {
                found.updateStats(least);
                found.updateStats(greatest);
            } else {
                found.updateStats((int) least);
                found.updateStats((int) greatest);
            }
        }

        void clear() {
            super.clear();
            least = Long.MAX_VALUE;
            greatest = Long.MIN_VALUE;
        }

        long spelled() {
            return (long) count * width;
        }

        void spell() {
            size = 0;
            room(count * width);
            for (int n = 0; n < count; n++) {
                put(words[numbers[n]]);
            }
        }

        int dictionarySize() {
            return entries * width;
        }

        BytesInput dictionary() {
            int before = size;
            byte[] page = plain;
            plain = new byte[entries * width];
            size = 0;
            for (int n = 0; n < entries; n++) {
                put(words[n]);
            }
            BytesInput found = BytesInput.from(plain, 0, size);
            plain = page;
            size = before;
            return found;
        }
    }

    /** The other columns, as Spark's own writer has them. */
    private static final class Others {

        private final ParquetWriteSupport support = new ParquetWriteSupport();
        private final MessageType message;
        private final ParquetProperties properties;
        private final ProjectingInternalRow part;
        private ColumnWriteStore store;
        private RecordConsumer consumer;

        Others(Configuration settings, StructType schema, List numbers, int pageBytes,
                int pageRows, int dictionaryBytes, boolean dictionaries) {
            StructType mine = new StructType();
            scala.collection.mutable.ArrayBuffer places = new scala.collection.mutable.ArrayBuffer();
            for (int n = 0; n < numbers.size(); n++) {
                Integer at = (Integer) numbers.get(n);
                mine = mine.add(schema.fields()[at.intValue()]);
                places.append(at);
            }
            Configuration own = new Configuration(settings);
            ParquetWriteSupport.setSchema(mine, own);
            message = support.init(own).getSchema();
            part = new ProjectingInternalRow(mine, places.toIndexedSeq());
            ParquetProperties.Builder asked = ParquetProperties.builder()
                    .withPageSize(pageBytes).withPageRowCountLimit(pageRows)
                    .withDictionaryPageSize(dictionaryBytes);
            List leaves = message.getPaths();
            for (int n = 0; n < leaves.size(); n++) {
                String leaf = String.join(".", (String[]) leaves.get(n));
                asked.withDictionaryEncoding(leaf, settings.getBoolean(
                        ParquetOutputFormat.ENABLE_DICTIONARY + "#" + leaf, dictionaries));
            }
            properties = asked.build();
        }

        void begin(ColumnChunkPageWriteStore pages) {
            store = properties.newColumnWriteStore(message, pages);
            consumer = new ColumnIOFactory().getColumnIO(message).getRecordWriter(store);
            support.prepareForWrite(consumer);
        }

        void write(InternalRow row) {
            part.project(row);
            support.write((InternalRow) part);
        }

        long held() {
            return store.getBufferedSize();
        }

        void end() {
            consumer.flush();
            store.flush();
            store.close();
        }
    }
}
