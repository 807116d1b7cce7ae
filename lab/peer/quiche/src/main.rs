//! An HTTP/3 server on the quiche crate: GET /N gives N bytes, and POST counts the bytes that it gets.
//!
//! Its event loop, sizes and flow control are those of quiche's own example, http3-server.rs, without its toy of a
//! Retry. What migration needs comes on top, as quiche's quiche-server does it with --enable-active-migration: clients
//! may migrate, there are spare connection IDs, and more than two paths are kept. Each path has its own congestion
//! state, and quiche validates a new one by itself. A packet leaves when quiche says, as in tokio-quiche: without that a
//! path to which the client returns would get its whole window at once. All else is the default of the library.
//!
//! Usage: heddle-quiche ADDRESS:PORT CERTIFICATE KEY [QLOG-DIRECTORY]

use quiche::h3::{self, NameValue};
use quiche::ConnectionId;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const MAX_DATAGRAM: usize = 1350;
const ZEROS: [u8; 65536] = [0; 65536];

/// How many paths and connection IDs are kept for a client.
const PATHS: u64 = 8;

struct Client {
    conn: quiche::Connection,
    held: Option<(Vec<u8>, quiche::SendInfo)>, // the next packet, until its time has come
    http: Option<h3::Connection>,
    replies: HashMap<u64, Reply>,
    uploads: HashMap<u64, u64>, // bytes by stream
}

/// What is left to send on a stream.
struct Reply {
    head: Option<Vec<h3::Header>>,
    text: Vec<u8>,
    zeros: u64, // after the text
}

struct Server {
    socket: mio::net::UdpSocket,
    config: quiche::Config,
    h3: h3::Config,
    random: File,
    qlog: Option<String>,
    clients: HashMap<u64, Client>,
    ids: HashMap<ConnectionId<'static>, u64>, // client by connection ID
    accepted: u64,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.len() < 4 {
        eprintln!("usage: {} ADDRESS:PORT CERTIFICATE KEY [QLOG-DIRECTORY]", args[0]);
        std::process::exit(2);
    }
    if let Err(e) = run(&args) {
        eprintln!("{}: {e}", args[0]);
        std::process::exit(1);
    }
}

fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let mut poll = mio::Poll::new()?;
    let mut socket = mio::net::UdpSocket::bind(args[1].parse()?)?;
    poll.registry().register(&mut socket, mio::Token(0), mio::Interest::READABLE)?;
    let mut server = Server {
        socket,
        config: config(&args[2], &args[3])?,
        h3: h3::Config::new()?,
        random: File::open("/dev/urandom")?,
        qlog: args.get(4).cloned(),
        clients: HashMap::new(),
        ids: HashMap::new(),
        accepted: 0,
    };
    println!("listening on {}", args[1]);
    let mut events = mio::Events::with_capacity(16);
    loop {
        let timeout = server.clients.values().filter_map(Client::timeout).min();
        match poll.poll(&mut events, timeout) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e.into()),
            _ => (),
        }
        server.receive()?;
        for client in server.clients.values_mut() {
            if client.conn.timeout().is_some_and(|t| t.is_zero()) {
                client.conn.on_timeout();
            }
            client.serve(&server.h3);
        }
        server.offer_ids()?;
        server.send()?;
        server.clients.retain(|_, c| !c.conn.is_closed());
        let clients = &server.clients;
        server.ids.retain(|_, id| clients.contains_key(id));
    }
}

fn config(certificate: &str, key: &str) -> quiche::Result<quiche::Config> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.load_cert_chain_from_pem_file(certificate)?;
    config.load_priv_key_from_pem_file(key)?;
    config.set_application_protos(h3::APPLICATION_PROTOCOL)?;
    config.set_max_idle_timeout(5000);
    config.set_max_recv_udp_payload_size(MAX_DATAGRAM);
    config.set_max_send_udp_payload_size(MAX_DATAGRAM);
    config.set_initial_max_data(10_000_000);
    config.set_initial_max_stream_data_bidi_local(1_000_000);
    config.set_initial_max_stream_data_bidi_remote(1_000_000);
    config.set_initial_max_stream_data_uni(1_000_000);
    config.set_initial_max_streams_bidi(100);
    config.set_initial_max_streams_uni(100);
    config.set_disable_active_migration(false);
    config.set_active_connection_id_limit(PATHS);
    Ok(config)
}

impl Server {
    /// Takes what has arrived.
    fn receive(&mut self) -> io::Result<()> {
        let mut buf = [0; 65535];
        let to = self.socket.local_addr()?;
        loop {
            let (len, from) = match self.socket.recv_from(&mut buf) {
                Ok(v) => v,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            let packet = &mut buf[..len];
            let Ok(header) = quiche::Header::from_slice(packet, quiche::MAX_CONN_ID_LEN) else {
                continue;
            };
            let id = match self.ids.get(&header.dcid) {
                Some(id) => *id,
                None => match self.accept(&header, to, from)? {
                    Some(id) => id,
                    None => continue,
                },
            };
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            if let Err(e) = client.conn.recv(packet, quiche::RecvInfo { to, from }) {
                eprintln!("{}: receive: {e}", client.conn.trace_id());
            }
        }
    }

    /// Makes a connection of an Initial, or answers with the versions there are.
    fn accept(&mut self, header: &quiche::Header, to: SocketAddr, from: SocketAddr) -> io::Result<Option<u64>> {
        if header.ty != quiche::Type::Initial {
            return Ok(None);
        }
        if !quiche::version_is_supported(header.version) {
            let mut out = [0; MAX_DATAGRAM];
            if let Ok(len) = quiche::negotiate_version(&header.scid, &header.dcid, &mut out) {
                self.send_to(&out[..len], from)?;
            }
            return Ok(None);
        }
        let scid = self.connection_id()?;
        let Ok(mut conn) = quiche::accept(&scid, None, to, from, &mut self.config) else {
            return Ok(None);
        };
        let id = self.accepted;
        self.accepted += 1;
        if let Some(dir) = &self.qlog {
            let file = File::create(format!("{dir}/quiche-{id}.sqlog"))?;
            conn.set_qlog(Box::new(file), "heddle-quiche".into(), "server".into());
        }
        // The client goes on with the ID that it chose until it has heard the server's.
        self.ids.insert(header.dcid.clone().into_owned(), id);
        self.ids.insert(scid, id);
        let client = Client { conn, held: None, http: None, replies: HashMap::new(), uploads: HashMap::new() };
        self.clients.insert(id, client);
        Ok(Some(id))
    }

    fn connection_id(&mut self) -> io::Result<ConnectionId<'static>> {
        let mut id = vec![0; quiche::MAX_CONN_ID_LEN];
        self.random.read_exact(&mut id)?;
        Ok(ConnectionId::from_vec(id))
    }

    /// Gives each client as many spare connection IDs as it takes, and answers for them.
    fn offer_ids(&mut self) -> io::Result<()> {
        let established: Vec<u64> =
            self.clients.iter().filter(|(_, c)| c.conn.is_established()).map(|(id, _)| *id).collect();
        for id in established {
            loop {
                let scid = self.connection_id()?;
                let mut token = [0; 16];
                self.random.read_exact(&mut token)?;
                let Some(client) = self.clients.get_mut(&id) else {
                    break;
                };
                while let Some(retired) = client.conn.retired_scid_next() {
                    self.ids.remove(&retired);
                }
                if client.conn.scids_left() == 0
                    || client.conn.new_scid(&scid, u128::from_be_bytes(token), false).is_err()
                {
                    break;
                }
                self.ids.insert(scid, id);
            }
        }
        Ok(())
    }

    /// Sends what the connections have to send by now.
    fn send(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for client in self.clients.values_mut() {
            while let Some((packet, info)) = client.next() {
                if info.at > now {
                    client.held = Some((packet, info));
                    break;
                }
                match self.socket.send_to(&packet, info.to) {
                    Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                    _ => (),
                }
            }
        }
        Ok(())
    }

    fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        match self.socket.send_to(data, to) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }
}

impl Client {
    /// When it has something to do without being asked.
    fn timeout(&self) -> Option<Duration> {
        let held = self.held.as_ref().map(|(_, info)| info.at.saturating_duration_since(Instant::now()));
        self.conn.timeout().into_iter().chain(held).min()
    }

    /// The next packet to send, if there is one.
    fn next(&mut self) -> Option<(Vec<u8>, quiche::SendInfo)> {
        if self.held.is_some() {
            return self.held.take();
        }
        let mut packet = vec![0; MAX_DATAGRAM];
        match self.conn.send(&mut packet) {
            Ok((len, info)) => {
                packet.truncate(len);
                Some((packet, info))
            },
            Err(quiche::Error::Done) => None,
            Err(e) => {
                eprintln!("{}: send: {e}", self.conn.trace_id());
                self.conn.close(false, 1, b"fail").ok();
                None
            },
        }
    }

    /// Takes requests and goes on with replies.
    fn serve(&mut self, config: &h3::Config) {
        // A client at a new address is probed, as quiche-server does.
        while let Some(event) = self.conn.path_event_next() {
            if let quiche::PathEvent::New(local, peer) = event {
                self.conn.probe_path(local, peer).ok();
            }
        }
        if self.http.is_none() {
            if !self.conn.is_established() {
                return;
            }
            self.http = h3::Connection::with_transport(&mut self.conn, config).ok();
        }
        if let Err(e) = self.requests() {
            eprintln!("{}: HTTP/3: {e}", self.conn.trace_id());
        }
        self.reply();
    }

    fn requests(&mut self) -> h3::Result<()> {
        let Some(http) = self.http.as_mut() else {
            return Ok(());
        };
        let mut buf = [0; 65536];
        loop {
            match http.poll(&mut self.conn) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let field = |name: &[u8]| list.iter().find(|h| h.name() == name).map(|h| h.value());
                    if field(b":method") == Some(b"POST") {
                        self.uploads.insert(stream, 0);
                        continue;
                    }
                    let size = field(b":path")
                        .and_then(|p| std::str::from_utf8(p).ok())
                        .and_then(|p| p.trim_start_matches('/').parse().ok());
                    self.replies.insert(stream, match size {
                        Some(size) => Reply::new(200, Vec::new(), size),
                        None => Reply::new(404, Vec::new(), 0),
                    });
                },
                Ok((stream, h3::Event::Data)) => {
                    while let Ok(len) = http.recv_body(&mut self.conn, stream, &mut buf) {
                        *self.uploads.entry(stream).or_default() += len as u64;
                    }
                },
                Ok((stream, h3::Event::Finished)) => {
                    if let Some(count) = self.uploads.remove(&stream) {
                        self.replies.insert(stream, Reply::new(200, count.to_string().into_bytes(), 0));
                    }
                },
                Ok((stream, h3::Event::Reset(_))) => {
                    self.uploads.remove(&stream);
                    self.replies.remove(&stream);
                },
                Ok(_) => (),
                Err(h3::Error::Done) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn reply(&mut self) {
        let Some(http) = self.http.as_mut() else {
            return;
        };
        let conn = &mut self.conn;
        self.replies.retain(|stream, reply| match reply.send(http, conn, *stream) {
            Ok(done) => !done,
            Err(h3::Error::Done | h3::Error::StreamBlocked) => true,
            Err(_) => false, // the client has gone, or does not want it any more
        });
    }
}

impl Reply {
    fn new(status: u16, text: Vec<u8>, zeros: u64) -> Reply {
        let length = text.len() as u64 + zeros;
        let head = vec![
            h3::Header::new(b":status", status.to_string().as_bytes()),
            h3::Header::new(b"server", b"quiche"),
            h3::Header::new(b"content-length", length.to_string().as_bytes()),
        ];
        Reply { head: Some(head), text, zeros }
    }

    /// Sends as much as there is room for, and says whether that was all.
    fn send(&mut self, http: &mut h3::Connection, conn: &mut quiche::Connection, stream: u64) -> h3::Result<bool> {
        if let Some(head) = &self.head {
            http.send_response(conn, stream, head, self.text.is_empty() && self.zeros == 0)?;
            self.head = None;
        }
        while !self.text.is_empty() {
            let sent = http.send_body(conn, stream, &self.text, self.zeros == 0)?;
            self.text.drain(..sent);
        }
        while self.zeros > 0 {
            let part = self.zeros.min(ZEROS.len() as u64);
            let sent = http.send_body(conn, stream, &ZEROS[..part as usize], part == self.zeros)?;
            self.zeros -= sent as u64;
        }
        Ok(true)
    }
}
