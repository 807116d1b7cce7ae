package webtest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Answer is an answer of a website, without how its body was cut into chunks.
type Answer struct {
	*http.Response
	Content []byte // the body
}

// Middle is a man in the middle of one connection of the cover http: whatever comes from the client passes attack, which may ask the bridge with
// it, or with anything else, and returns what the client gets. Without an answer the connection ends.
func Middle(client, bridge net.Conn, attack func(request []byte, ask func([]byte) *Answer) *Answer) {
	in, from := bufio.NewReader(client), bufio.NewReader(bridge)
	ask := func(request []byte) *Answer {
		if _, err := bridge.Write(request); err != nil {
			return nil
		}
		return ReadAnswer(from)
	}
	for {
		request, err := readRequest(in)
		if err != nil {
			return
		}
		answer := attack(request, ask)
		if answer == nil || answer.writeTo(client) != nil {
			return
		}
	}
}

// ReadAnswer reads an answer to a GET or a POST. It returns nil if there is no whole one.
func ReadAnswer(in *bufio.Reader) *Answer {
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	return &Answer{r, body}
}

// readRequest reads a request as it was sent.
func readRequest(in *bufio.Reader) (all []byte, err error) {
	size := 0
	for !bytes.HasSuffix(all, []byte("\r\n\r\n")) {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if value, found := strings.CutPrefix(strings.ToLower(string(line)), "content-length:"); found {
			if size, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return nil, err
			}
		}
		all = append(all, line...)
	}
	body := make([]byte, size)
	_, err = io.ReadFull(in, body)
	return append(all, body...), err
}

// writeTo writes the answer with its length.
func (a *Answer) writeTo(w io.Writer) error {
	r := *a.Response
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(a.Content)), int64(len(a.Content)), nil
	return r.Write(w)
}
