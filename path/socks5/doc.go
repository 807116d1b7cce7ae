// Package socks5 is the kind of path that leaves by a SOCKS5 proxy (RFC 1928): datagrams by UDP ASSOCIATE, streams by
// CONNECT, with user and password (RFC 1929) where a secret is given.
//
// What goes to the proxy takes the path that the tunnel rides: the TCP connection that holds an association, and the
// datagrams. Each flow has an association of its own, which ends with that connection.
//
// Do not use it to hide anything from the network in front of the proxy: SOCKS5 encrypts nothing, neither the server's
// address nor the password.
package socks5
