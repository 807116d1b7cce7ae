package pseudonym

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exchange is a request that Chromium sent by HTTP/2, below all Service Workers and caches, and the answer.
type exchange struct {
	host, path      string
	asked, answered map[string]string
	bytes           int  // of the answer's body
	left            bool // Chromium did not wait for the end of the answer
}

func (e exchange) String() string {
	return fmt.Sprintf("%s%s %v: %s, %d bytes", e.host, e.path, e.asked, e.answered[":status"], e.bytes)
}

// logNet lets Chromium write its log of the network from now on, and returns what reads the exchanges of the last [chromium.do].
func (c *chromium) logNet() (exchanges func() []*exchange) {
	file := filepath.Join(c.Home, "netlog.json")
	c.Args = append(c.Args, "--log-net-log="+file)
	return func() []*exchange {
		c.t.Helper()
		content, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		return parseNet(c.t, content)
	}
}

// parseNet reads a log, which has a line for its constants and one for each event.
func parseNet(t *testing.T, content []byte) (all []*exchange) {
	t.Helper()
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	var head struct {
		Types map[string]int `json:"logEventTypes"`
	}
	if err := json.Unmarshal(bytes.TrimSuffix(bytes.TrimPrefix(first, []byte(`{"constants":`)), []byte(",")), &head); err != nil {
		t.Fatal(err)
	}
	if head.Types["HTTP2_SESSION_SEND_RST_STREAM"] == 0 {
		t.Fatal("Chromium's log of the network names its events otherwise")
	}
	type key struct{ session, stream int }
	of := map[key]*exchange{}
	for line := range bytes.Lines(rest) {
		var event struct {
			Type   int
			Source struct{ ID int }
			Params struct {
				Stream  int `json:"stream_id"`
				Headers []string
				Size    int
			}
		}
		if json.Unmarshal(bytes.TrimRight(line, ",]}\n"), &event) != nil && json.Unmarshal(bytes.TrimRight(line, ",]\n"), &event) != nil {
			continue // the line that begins or ends the events
		}
		at := key{event.Source.ID, event.Params.Stream}
		switch event.Type {
		case head.Types["HTTP2_SESSION_SEND_HEADERS"]:
			e := &exchange{asked: headers(event.Params.Headers), answered: map[string]string{}}
			e.host, e.path = e.asked[":authority"], e.asked[":path"]
			of[at] = e
			all = append(all, e)
		case head.Types["HTTP2_SESSION_RECV_HEADERS"]:
			if e := of[at]; e != nil {
				e.answered = headers(event.Params.Headers)
			}
		case head.Types["HTTP2_SESSION_SEND_RST_STREAM"]:
			if e := of[at]; e != nil {
				e.left = true
			}
		case head.Types["HTTP2_SESSION_RECV_DATA"]:
			if e := of[at]; e != nil {
				e.bytes += event.Params.Size
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("Chromium's log of the network has no request")
	}
	return all
}

func headers(lines []string) map[string]string {
	m := map[string]string{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line[1:], ": ")
		m[line[:1]+name] = value
	}
	return m
}
