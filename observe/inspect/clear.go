package inspect

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"heddle/internal/clienthello"

	"golang.org/x/net/dns/dnsmessage"
)

// questions lists the names that a DNS message queries (RFC 1035 section 4.1).
func questions(message []byte) []string {
	var p dnsmessage.Parser
	if _, err := p.Start(message); err != nil {
		return nil
	}
	all, err := p.AllQuestions()
	if err != nil {
		return nil
	}
	var asked []string
	for _, q := range all {
		asked = append(asked, strings.TrimSuffix(q.Name.String(), "."))
	}
	return asked
}

// dnsOverTCP lists the questions in the first message of a TCP stream (RFC 1035 section 4.2.2).
func dnsOverTCP(stream []byte) (asked []string, done bool) {
	if len(stream) < 2 {
		return nil, false
	}
	length := int(binary.BigEndian.Uint16(stream))
	if len(stream) < 2+length {
		return nil, false
	}
	return questions(stream[2 : 2+length]), true
}

var httpStart = regexp.MustCompile(`^(HTTP/1\.|(GET|POST|HEAD|PUT|DELETE|OPTIONS|PATCH|CONNECT) )`)

// looksLikeHTTP reports whether a stream starts like one side of HTTP/1 (RFC 9112 section 2.1).
func looksLikeHTTP(stream []byte) bool { return httpStart.Match(stream) }

// request reads the first HTTP/1 request of a stream. done is false if its head is incomplete.
func request(stream []byte) (host, line string, done bool) {
	head := bytes.Index(stream, []byte("\r\n\r\n"))
	if head < 0 {
		return "", "", len(stream) >= clienthello.Limit
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(stream[:head+4])))
	if err != nil {
		return "", "", true
	}
	return hostOnly(r.Host), r.Method + " " + r.Host + r.URL.RequestURI(), true
}

// hostOnly removes the port from a Host header.
func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i]
	}
	return host
}

const longestText = 253 // longest name in DNS (RFC 1035 section 2.3.4)

// escaped makes untrusted text safe to print: ASCII with distinct escapes, and bounded.
func escaped(text string) string {
	if len(text) > longestText {
		text = text[:longestText] + "..."
	}
	quoted := strconv.QuoteToASCII(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
