// Package socks5 is the kind of path through a SOCKS5 proxy (RFC 1928): datagrams by UDP ASSOCIATE, streams by CONNECT, with
// user and password (RFC 1929) if there is a secret. The TCP connections and datagrams to the proxy take the path that the
// tunnel rides. Each flow has its own association, which ends with its TCP connection.
//
// Do not use it to hide anything from the network before the proxy: SOCKS5 encrypts neither addresses nor the password.
package socks5
