import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints one line per error code: the code, its name, and what kind of exception it is. */
public class ErrorCodes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            if (error == Errors.NONE) continue;
            Exception exception = error.exception();
            List<String> facts = new ArrayList<>();
            if (exception instanceof RetriableException) facts.add("retriable");
            if (exception instanceof InvalidMetadataException) facts.add("metadata");
            if (exception instanceof AuthorizationException) facts.add("authorization");
            System.out.println(error.code() + " " + error.name() + " " + String.join(",", facts));
        }
    }
}
