// Command quicgo is an HTTP/3 server and client on quic-go, as a program that uses the library would write them: with
// http3.Server and http3.Transport, and the library's defaults throughout.
//
// Package peer builds and starts it. Do not use it outside a lab: its server answers anybody with as many bytes as
// they ask for.
package main
