import java.sql.*;
import java.time.*;
import java.util.*;

public class Talk {
    /** The port, the password; then everything that a client of JDBC does, once with text and once with binary values. */
    public static void main(String[] args) throws Exception {
        talk(args[0], args[1], false);
        talk(args[0], args[1], true);
    }

    static void talk(String port, String password, boolean binary) throws Exception {
        Properties how = new Properties();
        how.setProperty("user", "admin");
        how.setProperty("password", password);
        how.setProperty("binaryTransfer", String.valueOf(binary));
        if (binary) how.setProperty("prepareThreshold", "-1");
        try (Connection c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + port + "/plant", how)) {
            DatabaseMetaData about = c.getMetaData();
            System.out.println("product " + about.getDatabaseProductName() + " " + about.getDatabaseMajorVersion());
            try (ResultSet r = about.getTables(null, "public", "%", null)) {
                while (r.next()) System.out.println("table " + r.getString("TABLE_NAME") + " " + r.getString("TABLE_TYPE"));
            }
            try (ResultSet r = about.getColumns(null, "public", "readings", "%")) {
                while (r.next()) System.out.println("column " + r.getString("COLUMN_NAME") + " " + r.getString("TYPE_NAME") + " " + r.getInt("DATA_TYPE"));
            }
            try (ResultSet r = about.getPrimaryKeys(null, "public", "rooms")) {
                while (r.next()) System.out.println("key " + r.getString("COLUMN_NAME"));
            }
            try (ResultSet r = about.getIndexInfo(null, "public", "rooms", false, false)) {
                while (r.next()) System.out.println("index " + r.getString("INDEX_NAME"));
            }
            try (ResultSet r = about.getSchemas()) { while (r.next()) System.out.println("schema " + r.getString(1)); }
            try (ResultSet r = about.getCatalogs()) { while (r.next()) System.out.println("catalog " + r.getString(1)); }
            try (ResultSet r = about.getTypeInfo()) { int n = 0; while (r.next()) n++; System.out.println("types " + (n > 10)); }
            try (ResultSet r = about.getImportedKeys(null, "public", "rooms")) { System.out.println("foreign " + r.next()); }
            try (PreparedStatement s = c.prepareStatement("INSERT INTO readings (at, sensor, v, n, d, b, ok, day, k) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")) {
                for (int i = 0; i < 8; i++) {
                    s.setObject(1, OffsetDateTime.of(2024, 5, 1, binary ? 15 : 12, 0, i, 0, ZoneOffset.UTC));
                    s.setString(2, "jö" + i);
                    s.setDouble(3, 31.5 + i);
                    s.setLong(4, 1L << 40);
                    s.setBigDecimal(5, new java.math.BigDecimal("3.25"));
                    s.setBytes(6, new byte[] {0, -1});
                    s.setBoolean(7, true);
                    s.setObject(8, LocalDate.of(2024, 2, 29));
                    s.setInt(9, -7);
                    if (i % 2 == 0) System.out.println("inserted " + s.executeUpdate()); else s.addBatch();
                }
                System.out.println("batch " + Arrays.toString(s.executeBatch()));
            }
            c.setAutoCommit(false);
            try (PreparedStatement s = c.prepareStatement("SELECT sensor, v, ts FROM hot WHERE v > ? ORDER BY v")) {
                s.setFetchSize(3);
                s.setDouble(1, 32.0);
                int n = 0;
                try (ResultSet r = s.executeQuery()) { while (r.next()) { n++; if (n == 1) System.out.println("row " + r.getString(1) + " " + r.getDouble(2) + " " + r.getObject(3, OffsetDateTime.class)); } }
                System.out.println("rows " + n);
            }
            c.commit();
            c.setAutoCommit(true);
            try (Statement s = c.createStatement()) { s.executeQuery("SELECT nonsense FROM lately"); }
            catch (SQLException e) { System.out.println("error " + e.getSQLState()); }
            org.postgresql.copy.CopyManager copy = ((org.postgresql.PGConnection) c).getCopyAPI();
            System.out.println("copied " + copy.copyIn("COPY readings (at, sensor, v) FROM STDIN WITH (FORMAT csv)", new java.io.StringReader("" + (binary ? "2024-05-01 16:00:0" : "2024-05-01 13:00:0") + "0,csv,50\n" + (binary ? "2024-05-01 16:00:0" : "2024-05-01 13:00:0") + "1,\"a,b\",\n")));
            try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT 1 WHERE 1 = 0")) { System.out.println("empty " + r.next()); }
        }
    }
}
