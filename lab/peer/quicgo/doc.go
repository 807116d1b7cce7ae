// Command quicgo is an HTTP/3 server and client on quic-go's http3.Server and http3.Transport, with the library's defaults.
//
// Package peer builds and starts it. Use it only in a lab: its server sends anybody as many bytes as they request.
package main
