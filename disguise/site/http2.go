package site

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const http2Preface = http2.ClientPreface

const (
	mostStreams = 4096    // of one connection
	mostTable   = 1 << 20 // bytes of a table of headers that an end may ask for
	mostHeaders = 1 << 16 // bytes of the headers of one message
)

// http2 reads the streams of an HTTP/2 connection (RFC 9113). What a server pushes is left out.
func (c *connection) http2() (all []exchange) {
	streams := map[uint32]*exchange{}
	var order []uint32
	frames(c.up, len(http2Preface), func(f http2.Frame, at, _ int) {
		x := streams[f.Header().StreamID]
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if x == nil && len(order) < mostStreams {
				streams[f.StreamID] = &exchange{method: f.PseudoValue("method"), request: header(f), asked: c.up.at(at),
					url: c.scheme + "://" + or(f.PseudoValue("authority"), c.base) + f.PseudoValue("path")}
				order = append(order, f.StreamID)
			}
		case *http2.DataFrame:
			if x != nil && len(x.posted) <= maxPosted {
				x.posted = append(x.posted, f.Data()...)
			}
		}
	})
	frames(c.down, 0, func(f http2.Frame, at, end int) {
		x := streams[f.Header().StreamID]
		if x == nil || x.whole {
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if status, _ := strconv.Atoi(f.PseudoValue("status")); status >= 200 {
				x.status, x.response, x.first = status, header(f), c.down.at(at)
			}
			x.whole = f.StreamEnded()
		case *http2.DataFrame:
			if len(x.body) <= MaxBody {
				x.body = append(x.body, f.Data()...)
			}
			x.whole = f.StreamEnded()
		}
		x.last = c.down.at(end - 1)
	})
	for _, id := range order {
		if x := streams[id]; x.status != 0 {
			all = append(all, *x)
		}
	}
	return all
}

// frames calls take with each frame of a stream after its first bytes, and with where it begins and ends.
func frames(s stream, first int, take func(f http2.Frame, at, end int)) {
	r := bytes.NewReader(s.data[first:])
	framer := http2.NewFramer(nil, r)
	// An end says in its settings, which are the other direction's, how large a table it takes.
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(mostTable)
	framer.MaxHeaderListSize = mostHeaders
	for {
		at := len(s.data) - r.Len()
		f, err := framer.ReadFrame()
		if f == nil || err != nil {
			if _, ofStream := err.(http2.StreamError); ofStream {
				continue
			}
			return
		}
		take(f, at, len(s.data)-r.Len())
	}
}

func header(f *http2.MetaHeadersFrame) http.Header {
	h := http.Header{}
	for _, field := range f.RegularFields() {
		h.Add(strings.TrimSpace(field.Name), field.Value)
	}
	return h
}
