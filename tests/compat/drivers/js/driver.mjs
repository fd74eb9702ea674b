// kafkajs, or Confluent's client behind the same face, driven a line at a time: see tests/compat/driving.py.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { randomUUID } from "node:crypto";

const require = createRequire(process.env.COMPAT_MODULES + "/");
const [client, address] = process.argv.slice(2);
const ours = client === "kafkajs";
const library = ours ? require("kafkajs") : require("@confluentinc/kafka-javascript").KafkaJS;
const version = require((ours ? "kafkajs" : "@confluentinc/kafka-javascript") + "/package.json").version;

class Lacks extends Error {}

const say = (said) => process.stdout.write(JSON.stringify(said) + "\n");
const raw = (text) => (text === null || text === undefined ? null : Buffer.from(text, "latin1"));
const text = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString("latin1"));

const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 200 };
const common = { clientId: "compat", brokers: [address], retry, logLevel: library.logLevel.ERROR };
const kafka = new library.Kafka(
  ours ? { ...common, logCreator: () => ({ log }) => console.error(JSON.stringify(log)) } : { kafkaJS: common },
);

const producers = new Map();
const members = new Map();

// The two libraries take options in different places.
const producerOf = (options, native) => kafka.producer(ours ? options : { kafkaJS: options, ...native });
const consumerOf = (options, native) => kafka.consumer(ours ? options : { kafkaJS: options, ...native });

async function coded(compression) {
  if (ours && !["none", "gzip"].includes(compression)) {
    throw new Lacks(`its codec for ${compression} is a package of its own`);
  }
  return { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }[compression];
}

function messages(records) {
  return records.map((one) => {
    const headers = {};
    for (const [name, value] of one.headers) {
      if (value === null) {
        throw new Lacks("its producer refuses a header without a value");
      }
      headers[name] = name in headers ? [headers[name], raw(value)].flat() : raw(value);
    }
    const message = { key: raw(one.key), value: raw(one.value), partition: one.partition, headers };
    if (one.timestamp !== null) {
      message.timestamp = String(one.timestamp);
    }
    return message;
  });
}

function offsets(answers, count) {
  const found = [];
  for (const answer of answers) {
    const first = Number(answer.baseOffset ?? answer.offset ?? -1);
    found.push(first);
  }
  return found.length === count ? found : Array.from({ length: count }, (_, at) => (found[0] < 0 ? -1 : found[0] + at));
}

async function produce({ topic, records, compression = "none", acks = -1 }) {
  const codec = await coded(compression);
  const producer = ours
    ? producerOf({})
    : producerOf({ acks, compression: ["none", "gzip", "snappy", "lz4", "zstd"][codec] }, {
      "message.max.bytes": 1048588, "linger.ms": 20,
    });
  await producer.connect();
  try {
    const all = messages(records);
    // kafkajs makes one batch of all that it is given, however large that is.
    const large = all.some(({ value }) => value !== null && value.length > 100_000);
    const found = [];
    for (const batch of large ? all.map((one) => [one]) : [all]) {
      const sent = { topic, messages: batch };
      const answers = await producer.send(ours ? { ...sent, acks, compression: codec } : sent);
      found.push(...offsets(answers, batch.length));
    }
    return found;
  } finally {
    await producer.disconnect();
  }
}

const calls = {
  produce,

  async open({ producer, idempotent = false, transactional = "" }) {
    const options = { idempotent: idempotent || Boolean(transactional), maxInFlightRequests: 1 };
    if (transactional) {
      options.transactionalId = transactional;
      options.transactionTimeout = 60000;
    }
    const made = producerOf(options);
    await made.connect();
    producers.set(producer, { made, sent: [] });
  },

  async send({ producer, topic, records }) {
    const one = producers.get(producer);
    const promise = (one.transaction ?? one.made).send({ topic, messages: messages(records) });
    promise.catch(() => {});
    one.sent.push([promise, records.length]);
  },

  async flush({ producer }) {
    const one = producers.get(producer);
    const found = [];
    for (const [promise, count] of one.sent.splice(0)) {
      found.push(...offsets(await promise, count));
    }
    return found;
  },

  async close({ producer }) {
    await calls.flush({ producer });
    await producers.get(producer).made.disconnect();
    producers.delete(producer);
  },

  async drop({ producer }) {
    await producers.get(producer).made.disconnect().catch(() => {});
    producers.delete(producer);
  },

  async begin({ producer }) {
    const one = producers.get(producer);
    one.transaction = await one.made.transaction();
  },

  async commit({ producer }) {
    await calls.flush({ producer });
    await again(() => producers.get(producer).transaction.commit());
  },

  async abort({ producer }) {
    await calls.flush({ producer });
    await again(() => producers.get(producer).transaction.abort());
  },

  async send_offsets({ producer, group, topic, partition, offset }) {
    const topics = [{ topic, partitions: [{ partition, offset: String(offset) }] }];
    const { transaction } = producers.get(producer);
    if (ours) {
      await transaction.sendOffsets({ consumerGroupId: group, topics });
      return;
    }
    const consumer = consumerOf({ groupId: group });
    await consumer.connect();
    try {
      await transaction.sendOffsets({ consumer, topics });
    } finally {
      await consumer.disconnect();
    }
  },

  // It reads in groups only: one of its own for each read.
  async read({ topic, partition, offset, count, committed = false }) {
    const consumer = consumerOf({
      groupId: `read-${randomUUID()}`, readUncommitted: !committed, autoCommit: false, fromBeginning: true,
      sessionTimeout: 10000, maxWaitTimeInMs: 200,
    });
    await consumer.connect();
    await consumer.subscribe(ours ? { topic, fromBeginning: true } : { topic });
    const found = [];
    let enough;
    const all = new Promise((resolve) => { enough = resolve; });
    await consumer.run({
      ...(ours ? { autoCommit: false } : {}),
      eachMessage: async ({ partition: at, message }) => {
        if (at !== partition || Number(message.offset) < offset || found.length >= count) {
          return;
        }
        const headers = [];
        for (const [name, value] of Object.entries(message.headers ?? {})) {
          for (const each of Array.isArray(value) ? value : [value]) {
            headers.push([name, text(each)]);
          }
        }
        found.push({
          offset: Number(message.offset), key: text(message.key), value: text(message.value), headers,
          timestamp: Number(message.timestamp),
        });
        if (found.length === count) {
          enough();
        }
      },
    });
    try {
      await within(all, () => `${count - found.length} records did not come`);
      return found;
    } finally {
      await consumer.disconnect();
    }
  },

  async offset_at({ topic, partition, timestamp }) {
    const found = await administer((admin) => admin.fetchTopicOffsetsByTimestamp(topic, timestamp));
    return Number(found.find((one) => one.partition === partition).offset);
  },

  async join({ member, group, topic, protocol = "classic", strategy = "range", instance = "", session_ms: session = 10000 }) {
    if (ours && protocol !== "classic") {
      throw new Lacks("it speaks the classic protocol only");
    }
    if (ours && strategy !== "range") {
      throw new Lacks("it has no cooperative assignor");
    }
    if (ours && instance) {
      throw new Lacks("it has no static members");
    }
    const positions = new Map();
    const held = new Set();
    const tell = () => say({ event: "holds", member, partitions: [...held].sort() });
    let consumer;
    if (ours) {
      consumer = kafka.consumer({
        groupId: group, sessionTimeout: session, heartbeatInterval: 300, metadataMaxAge: 500, maxWaitTimeInMs: 200,
      });
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        const given = new Set(payload.memberAssignment[topic] ?? []);
        const lost = [...held].filter((one) => !given.has(one));
        held.clear();
        given.forEach((one) => held.add(one));
        if (lost.length) {
          say({ event: "lost", member, partitions: lost });
        }
        tell();
      });
    } else {
      const settings = { groupId: group, fromBeginning: true, autoCommit: false };
      const native = { "topic.metadata.refresh.interval.ms": 500 };
      if (protocol === "consumer") {
        native["group.protocol"] = "consumer";
      } else {
        native["session.timeout.ms"] = session;
        native["heartbeat.interval.ms"] = 300;
        native["partition.assignment.strategy"] = strategy;
      }
      if (instance) {
        native["group.instance.id"] = instance;
      }
      native.rebalance_cb = (error, partitions) => {
        const numbers = partitions.map((one) => one.partition);
        if (error.code === library.ErrorCodes.ERR__ASSIGN_PARTITIONS) {
          numbers.forEach((one) => held.add(one));
        } else {
          numbers.forEach((one) => held.delete(one));
          if (numbers.length) {
            say({ event: "lost", member, partitions: numbers });
          }
        }
        tell();
      };
      consumer = consumerOf(settings, native);
    }
    await consumer.connect();
    await consumer.subscribe(ours ? { topics: [topic], fromBeginning: true } : { topics: [topic] });
    members.set(member, { consumer, topic, positions });
    consumer.run({
      ...(ours ? { autoCommit: false } : {}),
      eachMessage: async ({ partition, message }) => {
        positions.set(partition, Number(message.offset) + 1);
        say({ event: "record", member, partition, offset: Number(message.offset), value: text(message.value) ?? "" });
      },
    }).catch((error) => console.error(error));
  },

  async commit_member({ member }) {
    const { consumer, topic, positions } = members.get(member);
    await consumer.commitOffsets([...positions].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })));
  },

  async leave({ member }) {
    await members.get(member).consumer.disconnect();
    members.delete(member);
  },

  async create_topic({ topic, partitions, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    const made = await administer((admin) => admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
    }));
    if (!made) {
      throw new Error("it is there already");
    }
  },

  async delete_topic({ topic }) {
    await administer((admin) => admin.deleteTopics({ topics: [topic] }));
  },

  async partitions({ topic }) {
    const found = await administer((admin) => admin.fetchTopicMetadata({ topics: [topic] }));
    return (found.topics ?? found)[0].partitions.length;
  },

  async grow({ topic, partitions }) {
    await administer((admin) => {
      has(admin, "createPartitions");
      return admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] });
    });
  },

  async configs({ topic }) {
    const found = await administer((admin) => {
      has(admin, "describeConfigs");
      return admin.describeConfigs({ resources: [{ type: library.ConfigResourceTypes.TOPIC, name: topic }] });
    });
    return Object.fromEntries(found.resources[0].configEntries.map((one) => [one.configName, one.configValue]));
  },

  async replace_configs({ topic, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    await administer((admin) => {
      has(admin, "alterConfigs");
      return admin.alterConfigs({ resources: [{ type: library.ConfigResourceTypes.TOPIC, name: topic, configEntries }] });
    });
  },

  async delete_records({ topic, partition, before }) {
    await administer(async (admin) => {
      has(admin, "deleteTopicRecords");
      // kafkajs looks for the leader in what it knows already, and does not ask.
      await admin.fetchTopicOffsets(topic);
      return admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] });
    });
    return null;
  },

  async groups() {
    return (await administer((admin) => admin.listGroups())).groups.map((one) => one.groupId);
  },

  async group({ group }) {
    const [found] = (await administer((admin) => admin.describeGroups([group]))).groups;
    const names = library.ConsumerGroupStates ?? {};
    const state = typeof found.state === "number"
      ? Object.keys(names).find((name) => names[name] === found.state) : found.state;
    return { state: state.toLowerCase().replaceAll("_", ""), members: found.members.length };
  },

  async committed({ group, topic, partition }) {
    const found = await administer((admin) => admin.fetchOffsets({ groupId: group, topics: [topic] }));
    return Number(found[0].partitions.find((one) => one.partition === partition).offset);
  },

  async delete_group({ group }) {
    await administer((admin) => admin.deleteGroups([group]));
  },
};

// Confluent's client gives up waiting before the broker is back, and wants the same call again.
async function again(what) {
  for (let left = 10; ; left -= 1) {
    try {
      return await what();
    } catch (error) {
      if (left === 0 || error.name !== "KafkaJSTimeout") {
        throw error;
      }
    }
  }
}

function has(admin, name) {
  if (typeof admin[name] !== "function") {
    throw new Lacks("it has no call for this");
  }
}

async function administer(what) {
  const admin = kafka.admin(ours ? { retry: { ...retry, retries: 3 } } : {});
  await admin.connect();
  try {
    return await what(admin);
  } finally {
    await admin.disconnect();
  }
}

async function within(promise, why) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(why())), 60000); });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

say({ hello: { client: ours ? "kafkajs" : "confluent-kafka-javascript", version } });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: verb, ...given } = JSON.parse(line);
  try {
    if (!(verb in calls)) {
      throw new Lacks(`it has no call for this: ${verb}`);
    }
    say({ id, ok: (await calls[verb](given)) ?? null });
  } catch (error) {
    if (String(error).includes("not available at build time")) {
      say({ id, lacks: "its codec for zstd needs libzstd's headers where it is built" });
    } else if (error instanceof Lacks) {
      say({ id, lacks: error.message });
    } else {
      console.error(error);
      say({ id, error: String(error) });
    }
  }
}
process.exit(0);
