package wgconf

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
)

var wireguardLine = regexp.MustCompile(`(?im)^\s*(\[\s*(interface|peer)\s*\]|(private|public|preshared)key\s*=)`)

// signs identify files that people mistake for a WireGuard file, in this order.
var signs = []struct {
	what string
	sign *regexp.Regexp
}{
	{"a private key or a certificate in PEM", regexp.MustCompile(`(?m)^-----BEGIN [A-Z0-9 ]+-----`)},
	{"an OpenVPN file", regexp.MustCompile(`(?m)^\s*(client\s*$|remote\s+\S+|dev\s+(tun|tap)|proto\s+(udp|tcp)|<ca>)`)},
	{"a web page", regexp.MustCompile(`(?i)^\s*(<!doctype html|<html)`)},
	{"XML", regexp.MustCompile(`^\s*<\?xml`)},
	{"JSON", regexp.MustCompile(`^\s*[{\[]\s*["{\]}]`)},
	{"an IPsec file", regexp.MustCompile(`(?m)^\s*(conn\s+\S+|connections\s*\{)`)},
	{"a heddle.toml; run it with `heddle run`", regexp.MustCompile(`(?m)^\s*\[\[?(up|split|tunnel|relay)`)},
	{"a shell script", regexp.MustCompile(`^#!`)},
}

// foreign returns what kind of file data looks like, or "" if it may be a WireGuard file.
func foreign(data []byte) string {
	if wireguardLine.Match(data) && !bytes.ContainsRune(data, 0) {
		return ""
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "an empty file"
	}
	for _, s := range signs {
		if s.sign.Match(data) {
			return s.what
		}
	}
	if kind := http.DetectContentType(data); !strings.HasPrefix(kind, "text/") {
		return "binary data (" + kind + ")"
	}
	return "some other text: it has neither [Interface] nor [Peer]"
}
