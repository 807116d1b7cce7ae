package browser

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// What Chromium says first, in this order, and how it divides bodies.
const (
	headerTable  = 64 << 10  // bytes
	streamWindow = 6 << 20   // bytes
	connWindow   = 15 << 20  // bytes
	headerList   = 256 << 10 // bytes
	mostData     = 16<<10 - 9
	mostHeader   = 16<<10 - 5 // of a frame that has a priority too
)

const firstWindow = 65535 // bytes, of a connection and of streams (RFC 9113, section 6.9.2)

// Field is one field of the header of a request.
type Field struct {
	Name, Value string
	// Once says that the value will not come again, so that it takes no room in the table of the compression.
	Once bool
}

// Request is a request of HTTP/2.
type Request struct {
	Method, Authority, Path string
	Fields                  []Field // in their order
	Body                    []byte
	Weight                  uint8 // of the stream, less 1 (RFC 7540, section 5.3.2)
}

// Conn is the client's end of a connection of HTTP/2 (RFC 9113). Its methods may run concurrently.
type Conn struct {
	c  io.Writer
	in *http2.Framer // of Serve

	writing sync.Mutex // held while frames are written that belong together
	buffer  bytes.Buffer
	out     *http2.Framer // writes into the buffer
	block   bytes.Buffer
	table   *hpack.Encoder // writes into the block

	mu       sync.Mutex
	changed  *sync.Cond
	streams  map[uint32]*Stream
	last     uint32 // the last stream
	credit   int64  // bytes that this end may send
	initial  int64  // credit of a new stream
	room     int64  // bytes that the server may send
	consumed int64  // bytes that were read and not yet given back
	failed   error
}

// Stream is a request and its answer. One goroutine at a time may read.
type Stream struct {
	conn   *Conn
	id     uint32
	status int
	header http.Header
	credit int64
	room   int64
	// The rest is about the body.
	consumed int64
	body     bytes.Buffer
	ended    bool  // the server sent all
	failed   error // set once
}

// ErrGoAway says that the server takes no more requests.
var ErrGoAway = errors.New("the server takes no more requests")

// NewConn begins HTTP/2 on c, behind a TLS handshake. [Conn.Serve] must run.
func NewConn(c io.ReadWriter) (*Conn, error) {
	h := &Conn{c: c, streams: map[uint32]*Stream{}, credit: firstWindow, initial: firstWindow, room: connWindow}
	h.changed = sync.NewCond(&h.mu)
	h.in = http2.NewFramer(nil, c)
	h.in.ReadMetaHeaders = hpack.NewDecoder(headerTable, nil)
	h.in.MaxHeaderListSize = headerList
	h.out = http2.NewFramer(&h.buffer, nil)
	h.table = hpack.NewEncoder(&h.block)
	return h, h.write(func() error {
		h.buffer.WriteString(http2.ClientPreface)
		return errors.Join(h.out.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: headerTable}, http2.Setting{ID: http2.SettingEnablePush, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: headerList}),
			h.out.WriteWindowUpdate(0, connWindow-firstWindow))
	})
}

// write sends at once all that frames writes.
func (h *Conn) write(frames func() error) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	h.buffer.Reset()
	if err := frames(); err != nil {
		return err
	}
	_, err := h.c.Write(h.buffer.Bytes())
	return err
}

// Do sends a request. It returns once all of it was sent.
func (h *Conn) Do(r Request) (*Stream, error) {
	var s *Stream
	body := r.Body
	err := h.write(func() error {
		var err error
		if s, err = h.open(); err != nil {
			return err
		}
		if h.encode(r); h.block.Len() > mostHeader {
			return errors.New("the header of a request does not fit a frame")
		}
		err = h.out.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: h.block.Bytes(), EndHeaders: true, EndStream: len(body) == 0,
			Priority: http2.PriorityParam{Exclusive: true, Weight: r.Weight}})
		if n := s.take(len(body), false); n > 0 && err == nil {
			err = h.out.WriteData(s.id, n == len(body), body[:n])
			body = body[n:]
		}
		return err
	})
	for err == nil && len(body) > 0 {
		n := s.take(len(body), true)
		if n == 0 {
			err = s.err()
			break
		}
		err = h.write(func() error { return h.out.WriteData(s.id, n == len(body), body[:n]) })
		body = body[n:]
	}
	if err != nil && s != nil {
		s.Close()
	}
	return s, err
}

// open adds a stream to the table.
func (h *Conn) open() (*Stream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return nil, h.failed
	}
	if h.last += 2; h.last == 2 {
		h.last = 1
	}
	s := &Stream{conn: h, id: h.last, credit: h.initial, room: streamWindow}
	h.streams[s.id] = s
	return s, nil
}

// encode writes the header of a request into h.block. h.writing is held.
func (h *Conn) encode(r Request) {
	h.block.Reset()
	field := func(name, value string, once bool) {
		_ = h.table.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: once}) // a buffer takes all
	}
	field(":method", r.Method, false)
	field(":authority", r.Authority, false)
	field(":scheme", "https", false)
	field(":path", r.Path, r.Path != "/") // which has a number of its own
	for _, f := range r.Fields {
		field(strings.ToLower(f.Name), f.Value, f.Once)
	}
}

// take takes credit for up to want bytes of a body. With wait it waits until there is some, or returns 0 if the stream failed.
func (s *Stream) take(want int, wait bool) int {
	h := s.conn
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		n := min(int64(want), mostData, h.credit, s.credit)
		if s.failed != nil {
			return 0
		}
		if n > 0 {
			h.credit, s.credit = h.credit-n, s.credit-n
			return int(n)
		}
		if !wait || want == 0 {
			return 0
		}
		h.changed.Wait()
	}
}

func (s *Stream) err() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.failed
}

// Head waits for the head of the answer.
func (s *Stream) Head() (status int, header http.Header, err error) {
	h := s.conn
	h.mu.Lock()
	defer h.mu.Unlock()
	for s.status == 0 && s.failed == nil {
		h.changed.Wait()
	}
	if s.status == 0 {
		return 0, nil, s.failed
	}
	return s.status, s.header, nil
}

// Read reads the body of the answer.
func (s *Stream) Read(b []byte) (int, error) {
	h := s.conn
	h.mu.Lock()
	for s.body.Len() == 0 && s.failed == nil && !s.ended {
		h.changed.Wait()
	}
	if s.body.Len() == 0 {
		defer h.mu.Unlock()
		if s.failed != nil {
			return 0, s.failed
		}
		return 0, io.EOF
	}
	n, _ := s.body.Read(b)
	ofStream, ofConn := h.consume(s, n)
	h.mu.Unlock()
	return n, h.giveBack(s.id, ofStream, ofConn)
}

// consume notes bytes that were read, and returns what to give back to the server. h.mu is held.
func (h *Conn) consume(s *Stream, n int) (ofStream, ofConn uint32) {
	if h.consumed += int64(n); h.consumed >= connWindow/2 {
		ofConn = uint32(h.consumed)
		h.room, h.consumed = h.room+h.consumed, 0
	}
	if s == nil || s.ended {
		return 0, ofConn
	}
	if s.consumed += int64(n); s.consumed >= streamWindow/2 {
		ofStream = uint32(s.consumed)
		s.room, s.consumed = s.room+s.consumed, 0
	}
	return ofStream, ofConn
}

func (h *Conn) giveBack(stream, ofStream, ofConn uint32) error {
	if ofStream == 0 && ofConn == 0 {
		return nil
	}
	return h.write(func() (err error) {
		if ofStream > 0 {
			err = h.out.WriteWindowUpdate(stream, ofStream)
		}
		if ofConn > 0 {
			err = errors.Join(err, h.out.WriteWindowUpdate(0, ofConn))
		}
		return err
	})
}

// Close ends the stream. The server is told if it is still sending.
func (s *Stream) Close() {
	h := s.conn
	h.mu.Lock()
	_, open := h.streams[s.id]
	delete(h.streams, s.id)
	_, ofConn := h.consume(nil, s.body.Len())
	s.body.Reset()
	tell := open && !s.ended && s.failed == nil
	if s.failed == nil {
		s.failed = net.ErrClosed
	}
	h.changed.Broadcast()
	h.mu.Unlock()
	if tell {
		_ = h.write(func() error { return h.out.WriteRSTStream(s.id, http2.ErrCodeCancel) }) // Serve tells if the connection is gone
	}
	_ = h.giveBack(0, 0, ofConn)
}

// Serve reads what the server sends until the connection ends. All streams fail then.
func (h *Conn) Serve() error {
	for {
		f, err := h.in.ReadFrame()
		if err == nil {
			err = h.receive(f)
		}
		var one http2.StreamError
		if errors.As(err, &one) { // such as a header that is too long
			h.fail(err, func(s *Stream) bool { return s.id == one.StreamID })
			continue
		}
		if err != nil {
			h.end(err)
			return err
		}
	}
}

// end lets no more streams begin.
func (h *Conn) end(err error) {
	h.mu.Lock()
	if h.failed == nil || h.failed == ErrGoAway {
		h.failed = err
	}
	h.mu.Unlock()
	h.fail(err, func(*Stream) bool { return true })
}

func (h *Conn) fail(err error, which func(*Stream) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams {
		if s.failed == nil && !s.ended && which(s) {
			s.failed = err
		}
	}
	h.changed.Broadcast()
}

// receive does what a frame says. An error ends the connection.
func (h *Conn) receive(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return h.data(f)
	case *http2.MetaHeadersFrame:
		return h.head(f)
	case *http2.SettingsFrame:
		return h.settings(f)
	case *http2.WindowUpdateFrame:
		return h.more(f)
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		return h.write(func() error { return h.out.WritePing(true, f.Data) })
	case *http2.RSTStreamFrame:
		h.fail(fmt.Errorf("the server ended the answer: %v", f.ErrCode), func(s *Stream) bool { return s.id == f.StreamID })
	case *http2.GoAwayFrame:
		h.mu.Lock()
		h.failed = ErrGoAway
		h.mu.Unlock()
		h.fail(ErrGoAway, func(s *Stream) bool { return s.id > f.LastStreamID })
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// head takes the head of an answer, or its trailer.
func (h *Conn) head(f *http2.MetaHeadersFrame) error {
	status, err := strconv.Atoi(f.PseudoValue("status"))
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.changed.Broadcast()
	s := h.streams[f.StreamID]
	switch {
	case s == nil: // it was closed
		if f.StreamID > h.last || f.StreamID%2 == 0 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	case s.ended || s.status != 0 && !f.StreamEnded():
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case s.status != 0:
		s.ended = true
		return nil
	case err != nil || status < 100 || status > 599 || f.Truncated:
		s.failed = errors.New("the answer has no status, or too long a head")
		return nil
	case status < 200: // another one follows
		return nil
	}
	s.status, s.header, s.ended = status, http.Header{}, f.StreamEnded()
	for _, field := range f.RegularFields() {
		s.header.Add(field.Name, field.Value)
	}
	return nil
}

// data takes a part of a body.
func (h *Conn) data(f *http2.DataFrame) error {
	size, part := int64(f.Length), f.Data()
	h.mu.Lock()
	s := h.streams[f.StreamID]
	h.room -= size
	if s != nil {
		s.room -= size
	}
	switch {
	case h.room < 0 || s != nil && s.room < 0:
		h.mu.Unlock()
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	case s == nil && (f.StreamID > h.last || f.StreamID%2 == 0), s != nil && (s.status == 0 || s.ended) && s.failed == nil:
		h.mu.Unlock()
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	unused := int(size)
	if s != nil && s.failed == nil {
		s.body.Write(part)
		unused -= len(part)
		s.ended = f.StreamEnded()
	}
	ofStream, ofConn := h.consume(s, unused)
	h.changed.Broadcast()
	h.mu.Unlock()
	return h.giveBack(f.StreamID, ofStream, ofConn)
}

// settings takes what the server allows.
func (h *Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	var table *uint32
	h.mu.Lock()
	err := f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			grown := int64(s.Val) - h.initial
			h.initial += grown
			for _, one := range h.streams {
				one.credit += grown
			}
		case http2.SettingHeaderTableSize:
			table = &s.Val
		}
		return s.Valid()
	})
	h.changed.Broadcast()
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return h.write(func() error {
		if table != nil {
			h.table.SetMaxDynamicTableSizeLimit(min(*table, headerTable))
			h.table.SetMaxDynamicTableSize(min(*table, headerTable))
		}
		return h.out.WriteSettingsAck()
	})
}

// more takes credit.
func (h *Conn) more(f *http2.WindowUpdateFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.changed.Broadcast()
	credit := &h.credit
	if f.StreamID != 0 {
		s := h.streams[f.StreamID]
		if s == nil {
			return nil
		}
		credit = &s.credit
	}
	if *credit += int64(f.Increment); *credit > 1<<31-1 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	return nil
}
