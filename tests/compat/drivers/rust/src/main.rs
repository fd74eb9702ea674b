//! rdkafka, driven a line at a time: see tests/compat/driving.py.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, Write};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{json, Value};

const WAIT: Duration = Duration::from_secs(60);

enum Failure {
    Lacks(String),
    Failed(String),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        Failure::Failed(error.to_string())
    }
}

type Answer = Result<Value, Failure>;

fn say(said: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{said}").and_then(|()| out.flush()).expect("nobody listens");
}

fn raw(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| text.chars().map(|one| one as u32 as u8).collect())
}

fn text(value: Option<&[u8]>) -> Value {
    value.map_or(Value::Null, |bytes| Value::String(bytes.iter().map(|one| *one as char).collect()))
}

fn word<'a>(call: &'a Value, name: &str) -> &'a str {
    call[name].as_str().unwrap_or("")
}

fn number(call: &Value, name: &str) -> i64 {
    call[name].as_i64().unwrap_or(0)
}

/// Where the acknowledgements of a producer come in: the number of a record, its offset or what went wrong.
#[derive(Clone, Default)]
struct Delivered(Arc<Mutex<HashMap<usize, Result<i64, String>>>>);

impl ClientContext for Delivered {}

impl ProducerContext for Delivered {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, at: Self::DeliveryOpaque) {
        let told = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.to_string()),
        };
        self.0.lock().expect("it is whole").insert(*at, told);
    }
}

struct Producing {
    producer: ThreadedProducer<Delivered>,
    delivered: Delivered,
    sent: usize,
}

impl Producing {
    fn new(config: &ClientConfig) -> Result<Self, KafkaError> {
        let delivered = Delivered::default();
        Ok(Producing { producer: config.create_with_context(delivered.clone())?, delivered, sent: 0 })
    }

    fn send(&mut self, call: &Value) -> Answer {
        let nothing = Vec::new();
        for one in call["records"].as_array().unwrap_or(&nothing) {
            let (key, value) = (raw(&one["key"]), raw(&one["value"]));
            let mut headers = OwnedHeaders::new();
            for pair in one["headers"].as_array().unwrap_or(&nothing) {
                let content = raw(&pair[1]);
                headers = headers.insert(Header { key: pair[0].as_str().unwrap_or(""), value: content.as_ref() });
            }
            let mut record = BaseRecord::<Vec<u8>, Vec<u8>, Box<usize>>::with_opaque_to(word(call, "topic"), Box::new(self.sent))
                .partition(number(one, "partition") as i32)
                .headers(headers);
            if let Some(key) = &key {
                record = record.key(key);
            }
            if let Some(value) = &value {
                record = record.payload(value);
            }
            if let Some(timestamp) = one["timestamp"].as_i64() {
                record = record.timestamp(timestamp);
            }
            self.producer.send(record).map_err(|(error, _)| error)?;
            self.sent += 1;
        }
        Ok(Value::Null)
    }

    fn flush(&mut self) -> Answer {
        self.producer.flush(WAIT)?;
        let mut told = self.delivered.0.lock().expect("it is whole");
        let mut offsets = Vec::new();
        for at in 0..std::mem::take(&mut self.sent) {
            match told.remove(&at) {
                Some(Ok(offset)) => offsets.push(if offset < 0 { -1 } else { offset }),
                Some(Err(error)) => return Err(Failure::Failed(error)),
                None => return Err(Failure::Failed("a record was not delivered".into())),
            }
        }
        Ok(json!(offsets))
    }

    fn forget(&mut self) {
        let _ = self.producer.flush(WAIT);
        self.delivered.0.lock().expect("it is whole").clear();
        self.sent = 0;
    }
}

/// Says what a member is given and what is taken from it.
struct Telling {
    member: String,
    held: Mutex<BTreeSet<i32>>,
}

impl ClientContext for Telling {}

impl ConsumerContext for Telling {
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let now: BTreeSet<i32> = match consumer.assignment() {
            Ok(list) => list.elements().iter().map(|one| one.partition()).collect(),
            Err(_) => BTreeSet::new(),
        };
        let mut held = self.held.lock().expect("it is whole");
        if matches!(rebalance, Rebalance::Revoke(_)) {
            let lost: Vec<i32> = held.difference(&now).copied().collect();
            if !lost.is_empty() {
                say(&json!({"event": "lost", "member": self.member, "partitions": lost}));
            }
        }
        *held = now;
        say(&json!({"event": "holds", "member": self.member, "partitions": *held}));
    }
}

type Told = (String, Sender<Result<(), String>>);

fn read_on(consumer: BaseConsumer<Telling>, member: String, calls: Receiver<Told>) {
    loop {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let value = match text(message.payload()) {
                Value::Null => json!(""),
                value => value,
            };
            say(&json!({
                "event": "record", "member": member, "partition": message.partition(), "offset": message.offset(),
                "value": value,
            }));
        }
        let Ok((what, done)) = calls.try_recv() else { continue };
        if what == "leave" {
            drop(consumer);
            let _ = done.send(Ok(()));
            return;
        }
        let _ = done.send(consumer.commit_consumer_state(CommitMode::Sync).map_err(|error| error.to_string()));
    }
}

struct Driver {
    address: String,
    admin: AdminClient<rdkafka::client::DefaultClientContext>,
    producers: HashMap<String, Producing>,
    members: HashMap<String, Sender<Told>>,
}

impl Driver {
    fn config(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address).set("reconnect.backoff.max.ms", "200");
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config
    }

    fn producer(&mut self, call: &Value) -> Result<&mut Producing, Failure> {
        let name = word(call, "producer");
        self.producers.get_mut(name).ok_or_else(|| Failure::Failed(format!("there is no producer {name}")))
    }

    fn answer(&mut self, call: &Value) -> Answer {
        match word(call, "do") {
            "produce" => {
                let acks = call["acks"].as_i64().unwrap_or(-1).to_string();
                let codec = call["compression"].as_str().unwrap_or("none");
                let config = self.config(&[
                    ("acks", &acks), ("compression.codec", codec), ("linger.ms", "20"), ("message.max.bytes", "1048588"),
                ]);
                let mut producing = Producing::new(&config)?;
                producing.send(call)?;
                producing.flush()
            }
            "open" => self.open(call),
            "send" => self.producer(call)?.send(call),
            "flush" => self.producer(call)?.flush(),
            "close" | "drop" => {
                self.producers.remove(word(call, "producer"));
                Ok(Value::Null)
            }
            "begin" => Ok(self.producer(call)?.producer.begin_transaction().map(|()| Value::Null)?),
            "commit" => Ok(self.producer(call)?.producer.commit_transaction(WAIT).map(|()| Value::Null)?),
            "abort" => {
                let producing = self.producer(call)?;
                producing.producer.abort_transaction(WAIT)?;
                producing.forget();
                Ok(Value::Null)
            }
            "send_offsets" => {
                let group: BaseConsumer = self.config(&[("group.id", word(call, "group"))]).create()?;
                let metadata = group.group_metadata().ok_or_else(|| Failure::Failed("no metadata of a group".into()))?;
                let list = listed(call, Offset::Offset(number(call, "offset")))?;
                self.producer(call)?.producer.send_offsets_to_transaction(&list, &metadata, WAIT)?;
                Ok(Value::Null)
            }
            "read" => self.read(call),
            "offset_at" => {
                let consumer: BaseConsumer = self.config(&[("group.id", "unused")]).create()?;
                let found = consumer.offsets_for_times(listed(call, Offset::Offset(number(call, "timestamp")))?, WAIT)?;
                Ok(match found.elements()[0].offset() {
                    Offset::Offset(offset) => json!(offset),
                    _ => Value::Null,
                })
            }
            "join" => self.join(call),
            "commit_member" => self.tell(call, "commit"),
            "leave" => {
                let done = self.tell(call, "leave");
                self.members.remove(word(call, "member"));
                done
            }
            _ => self.administer(call),
        }
    }

    fn open(&mut self, call: &Value) -> Answer {
        let mut config = self.config(&[("enable.idempotence", "true"), ("retry.backoff.max.ms", "200")]);
        let id = word(call, "transactional");
        if !id.is_empty() {
            config.set("transactional.id", id);
        }
        let producing = Producing::new(&config)?;
        if !id.is_empty() {
            producing.producer.init_transactions(WAIT)?;
        }
        self.producers.insert(word(call, "producer").into(), producing);
        Ok(Value::Null)
    }

    fn read(&self, call: &Value) -> Answer {
        let isolation = if call["committed"] == json!(true) { "read_committed" } else { "read_uncommitted" };
        let consumer: BaseConsumer =
            self.config(&[("group.id", "unused"), ("enable.auto.commit", "false"), ("isolation.level", isolation)]).create()?;
        consumer.assign(&listed(call, Offset::Offset(number(call, "offset")))?)?;
        let (mut found, count, end) = (Vec::new(), number(call, "count") as usize, Instant::now() + WAIT);
        while found.len() < count {
            if Instant::now() > end {
                return Err(Failure::Failed(format!("{} records did not come", count - found.len())));
            }
            let Some(message) = consumer.poll(Duration::from_millis(500)) else { continue };
            let message = message?;
            let headers: Vec<Value> = message
                .headers()
                .map(|all| all.iter().map(|one| json!([one.key, text(one.value)])).collect())
                .unwrap_or_default();
            found.push(json!({
                "offset": message.offset(), "key": text(message.key()), "value": text(message.payload()),
                "headers": headers, "timestamp": message.timestamp().to_millis(),
            }));
        }
        Ok(json!(found))
    }

    fn join(&mut self, call: &Value) -> Answer {
        let session = call["session_ms"].as_i64().unwrap_or(10_000).to_string();
        let mut config = self.config(&[
            ("group.id", word(call, "group")), ("enable.auto.commit", "false"), ("auto.offset.reset", "earliest"),
            ("topic.metadata.refresh.interval.ms", "500"),
        ]);
        if word(call, "protocol") == "consumer" {
            config.set("group.protocol", "consumer");
        } else {
            let strategy = call["strategy"].as_str().unwrap_or("range");
            config.set("session.timeout.ms", &session).set("heartbeat.interval.ms", "300");
            config.set("partition.assignment.strategy", strategy);
        }
        if !word(call, "instance").is_empty() {
            config.set("group.instance.id", word(call, "instance"));
        }
        let member = word(call, "member").to_string();
        let context = Telling { member: member.clone(), held: Mutex::default() };
        let consumer: BaseConsumer<Telling> = config.create_with_context(context)?;
        consumer.subscribe(&[word(call, "topic")])?;
        let (sender, receiver) = channel();
        self.members.insert(member.clone(), sender);
        std::thread::spawn(move || read_on(consumer, member, receiver));
        Ok(Value::Null)
    }

    fn tell(&self, call: &Value, what: &str) -> Answer {
        let (sender, receiver) = channel();
        let gone = || Failure::Failed("the member is gone".into());
        self.members[word(call, "member")].send((what.into(), sender)).map_err(|_| gone())?;
        match receiver.recv_timeout(WAIT) {
            Ok(Ok(())) => Ok(Value::Null),
            Ok(Err(error)) => Err(Failure::Failed(error)),
            Err(_) => Err(gone()),
        }
    }

    fn administer(&self, call: &Value) -> Answer {
        let (topic, options) = (word(call, "topic"), AdminOptions::new().operation_timeout(Some(WAIT)));
        let count = number(call, "partitions");
        match word(call, "do") {
            "create_topic" => {
                let mut wanted = NewTopic::new(topic, count as i32, TopicReplication::Fixed(1));
                let empty = serde_json::Map::new();
                for (name, value) in call["config"].as_object().unwrap_or(&empty) {
                    wanted = wanted.set(name, value.as_str().unwrap_or(""));
                }
                one(wait_for(self.admin.create_topics([&wanted], &options))?)
            }
            "delete_topic" => one(wait_for(self.admin.delete_topics(&[topic], &options))?),
            "grow" => one(wait_for(self.admin.create_partitions([&NewPartitions::new(topic, count as usize)], &options))?),
            "partitions" => {
                let found = self.admin.inner().fetch_metadata(Some(topic), WAIT)?;
                Ok(json!(found.topics()[0].partitions().len()))
            }
            "configs" => {
                let asked = [ResourceSpecifier::Topic(topic)];
                let found = wait_for(self.admin.describe_configs(&asked, &options))?.remove(0);
                let found = found.map_err(|code| Failure::Failed(code.to_string()))?;
                Ok(found.entries.iter().map(|one| (one.name.clone(), json!(one.value))).collect::<serde_json::Map<_, _>>().into())
            }
            "replace_configs" => {
                let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic));
                let empty = serde_json::Map::new();
                for (name, value) in call["config"].as_object().unwrap_or(&empty) {
                    change = change.set(name, value.as_str().unwrap_or(""));
                }
                match wait_for(self.admin.alter_configs(&[change], &options))?.remove(0) {
                    Ok(_) => Ok(Value::Null),
                    Err((_, code)) => Err(Failure::Failed(code.to_string())),
                }
            }
            "delete_records" => {
                let list = listed(call, Offset::Offset(number(call, "before")))?;
                let found = wait_for(self.admin.delete_records(&list, &options))?;
                Ok(match found.elements()[0].offset() {
                    Offset::Offset(offset) => json!(offset),
                    _ => Value::Null,
                })
            }
            "groups" => {
                let found = self.admin.inner().fetch_group_list(None, WAIT)?;
                Ok(json!(found.groups().iter().map(|one| one.name()).collect::<Vec<_>>()))
            }
            "group" => {
                let found = self.admin.inner().fetch_group_list(Some(word(call, "group")), WAIT)?;
                let group = found.groups().first().ok_or_else(|| Failure::Failed("there is no such group".into()))?;
                Ok(json!({"state": group.state().to_lowercase(), "members": group.members().len()}))
            }
            "committed" => {
                let consumer: BaseConsumer = self.config(&[("group.id", word(call, "group"))]).create()?;
                let found = consumer.committed_offsets(listed(call, Offset::Invalid)?, WAIT)?;
                Ok(match found.elements()[0].offset() {
                    Offset::Offset(offset) => json!(offset),
                    _ => json!(-1),
                })
            }
            "delete_group" => one(wait_for(self.admin.delete_groups(&[word(call, "group")], &options))?),
            "set_config" => Err(Failure::Lacks("it has AlterConfigs only".into())),
            other => Err(Failure::Lacks(format!("it has no call for this: {other}"))),
        }
    }
}

fn listed(call: &Value, offset: Offset) -> Result<TopicPartitionList, Failure> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(word(call, "topic"), number(call, "partition") as i32, offset)?;
    Ok(list)
}

fn one<T: std::fmt::Debug, E: std::fmt::Debug>(mut results: Vec<Result<T, E>>) -> Answer {
    match results.remove(0) {
        Ok(_) => Ok(Value::Null),
        Err(error) => Err(Failure::Failed(format!("{error:?}"))),
    }
}

fn wait_for<T>(what: impl std::future::Future<Output = Result<T, KafkaError>>) -> Result<T, KafkaError> {
    let thread = std::thread::current();
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread)).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut what = std::pin::pin!(what);
    loop {
        if let std::task::Poll::Ready(done) = what.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

fn main() {
    let address = std::env::args().nth(1).expect("the address of a broker");
    let admin = ClientConfig::new().set("bootstrap.servers", &address).create().expect("a client");
    let mut driver = Driver { address, admin, producers: HashMap::new(), members: HashMap::new() };
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    say(&json!({"hello": {"client": "rust-rdkafka", "version": format!("0.39.0 (librdkafka {librdkafka})")}}));
    for line in std::io::stdin().lock().lines() {
        let call: Value = serde_json::from_str(&line.expect("a line")).expect("a call");
        let id = call["id"].clone();
        match driver.answer(&call) {
            Ok(found) => say(&json!({"id": id, "ok": found})),
            Err(Failure::Lacks(what)) => say(&json!({"id": id, "lacks": what})),
            Err(Failure::Failed(what)) => {
                eprintln!("{what}");
                say(&json!({"id": id, "error": what}));
            }
        }
    }
    std::process::exit(0);
}
