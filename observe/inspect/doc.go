// Package inspect finds what one conversation tells somebody who can only read it: the protocol, the names of servers,
// and the content that is in clear.
//
// Its input is a stranger's bytes. Every parser is bounded in memory and time and is fuzzed; what it cannot read it
// leaves out. It looks at DNS queries, the server name of TLS ClientHellos over TCP and in QUIC Initials, and the Host
// of HTTP requests.
//
// Do not use it to dissect a protocol: it stops at the first thing that names somebody.
package inspect
