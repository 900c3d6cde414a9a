import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Turns (message, version, JSON) into the bytes Kafka itself would send, over stdin and stdout.
 *
 * A question is an int32 length, an int16 version, a UTF string with the class name and the JSON; an
 * answer is an int32 length, a status byte, and the bytes or the error's text. With the version
 * ASSIGN the class is an assignor, the JSON is its cluster and members, and the answer is JSON too.
 */
public class Oracle {
    private static final byte DONE = 0;
    private static final byte REFUSED = 1;
    /** This release does not have the message or the version. */
    private static final byte UNKNOWN = 2;

    private static final short ASSIGN = -1;

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Map<String, Method> READERS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        // Nothing but answers may reach stdout.
        System.setOut(new PrintStream(System.err));
        while (true) {
            byte[] question;
            try {
                question = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(question);
            answer(question, out);
            out.flush();
        }
    }

    private static void answer(byte[] question, DataOutputStream out) throws IOException {
        byte status = DONE;
        byte[] content;
        try {
            content = encode(question);
        } catch (ClassNotFoundException error) {
            status = UNKNOWN;
            content = error.toString().getBytes(StandardCharsets.UTF_8);
        } catch (InvocationTargetException error) {
            status = REFUSED;
            content = error.getCause().toString().getBytes(StandardCharsets.UTF_8);
        } catch (ReflectiveOperationException | RuntimeException error) {
            status = REFUSED;
            content = error.toString().getBytes(StandardCharsets.UTF_8);
        }
        out.writeInt(content.length + 1);
        out.writeByte(status);
        out.write(content);
    }

    private static byte[] encode(byte[] question) throws IOException, ReflectiveOperationException {
        ByteBuffer buffer = ByteBuffer.wrap(question);
        short version = buffer.getShort();
        byte[] name = new byte[buffer.getShort()];
        buffer.get(name);
        byte[] json = new byte[buffer.remaining()];
        buffer.get(json);
        if (version == ASSIGN)
            return assign(new String(name, StandardCharsets.UTF_8), MAPPER.readTree(json));
        String path = "org.apache.kafka.common.message." + new String(name, StandardCharsets.UTF_8);
        requireVersion(Class.forName(path), version);
        Message message = (Message) reader(path).invoke(null, MAPPER.readTree(json), version);
        return bytes(message, version);
    }

    private static void requireVersion(Class<?> type, short version)
        throws ReflectiveOperationException {
        short lowest = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
        short highest = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
        if (version < lowest || version > highest)
            throw new ClassNotFoundException("version " + version);
    }

    private static Method reader(String path) throws ReflectiveOperationException {
        Method known = READERS.get(path);
        if (known == null) {
            Class<?> converter = Class.forName(path + "JsonConverter");
            known = converter.getMethod("read", JsonNode.class, short.class);
            READERS.put(path, known);
        }
        return known;
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static byte[] assign(String name, JsonNode question)
        throws IOException, ReflectiveOperationException {
        Class<?> type = Class.forName("org.apache.kafka.clients.consumer." + name);
        Map<String, Integer> cluster = new HashMap<>();
        question.get("cluster").fields()
            .forEachRemaining(topic -> cluster.put(topic.getKey(), topic.getValue().asInt()));
        Map<String, Subscription> members = new HashMap<>();
        question.get("members").fields()
            .forEachRemaining(one -> members.put(one.getKey(), subscription(one.getValue())));
        AbstractPartitionAssignor assignor =
            (AbstractPartitionAssignor) type.getConstructor().newInstance();
        ObjectNode answer = MAPPER.createObjectNode();
        assignor.assign(cluster, members).forEach((member, partitions) -> {
            ArrayNode found = answer.putArray(member);
            for (TopicPartition one : partitions)
                found.addArray().add(one.topic()).add(one.partition());
        });
        return MAPPER.writeValueAsBytes(answer);
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned")
            .forEach(one -> owned.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt())));
        ByteBuffer userData = null;
        try {
            if (!member.get("userData").isNull())
                userData = ByteBuffer.wrap(member.get("userData").binaryValue());
        } catch (IOException error) {
            throw new IllegalArgumentException(error);
        }
        int generation = member.get("generation").asInt();
        Subscription found =
            new Subscription(topics, userData, owned, generation, Optional.empty());
        JsonNode instance = member.get("instanceId");
        if (!instance.isNull())
            found.setGroupInstanceId(Optional.of(instance.asText()));
        return found;
    }
}
