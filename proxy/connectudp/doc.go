// Package connectudp is a CONNECT-UDP proxy (RFC 9298) over HTTP/3, the other side of masque paths.
//
// It serves only authenticated users, forwards only to public addresses unless configured otherwise, and limits the state of
// each user and each stranger. It does not log who talks to whom, but its owner can see that.
package connectudp
