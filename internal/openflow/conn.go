package openflow

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is a connection to a bridge. It is safe for concurrent use.
type Conn struct {
	c    net.Conn
	got  func(any)
	send sync.Mutex

	mu      sync.Mutex
	last    uint32 // request
	waiting map[uint32]*call
	err     error // why the connection ended
	ended   chan struct{}
}

// call is a request that waits for its answers.
type call struct {
	take func(message) (done bool, err error)
	done chan error // has room for one
}

// patience is how long an answer may take.
const patience = 10 * time.Second

// Dial connects to a bridge by the socket at which it is managed. It calls got with each [Packet] and [Removed] that the bridge sends, one after the
// other. got must not wait for an answer of the bridge.
func Dial(socket string, got func(any)) (*Conn, error) {
	c, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return nil, err
	}
	o := &Conn{c: c, got: got, waiting: map[uint32]*call{}, ended: make(chan struct{})}
	if err := o.begin(); err != nil {
		c.Close()
		return nil, err
	}
	return o, nil
}

// helloVersions is the type of the part of a hello that lists versions (section 7.5.1).
const helloVersions = 1

func (o *Conn) begin() error {
	if err := o.c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	// Bridges hand nothing to connections of management that do not ask for it, by how much they want of each packet.
	const all = 0xffff
	hello := []byte{0, helloVersions, 0, 8, 0, 0, 0, 1 << version}
	if err := o.write(message{kind: kindHello, body: hello}, message{kind: kindSetConfig, body: []byte{0, 0, all >> 8, all & 0xff}}); err != nil {
		return err
	}
	from := bufio.NewReaderSize(o.c, most)
	m, err := read(from)
	switch {
	case err != nil:
		return err
	case m.kind == kindError:
		return parseError(m.body)
	case m.kind != kindHello:
		return errors.New("this is no bridge: it does not begin with a hello of OpenFlow")
	case m.version < version:
		return &Error{}
	}
	if err := o.c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	go o.listen(from)
	// An answer shows that both speak the same version.
	return o.ask(func(message) (bool, error) { return true, nil }, message{kind: kindEchoRequest})
}

// read reads a message, which must be one of the version that both speak, but for the first one.
func read(from io.Reader) (m message, err error) {
	var header [headerSize]byte
	if _, err = io.ReadFull(from, header[:]); err != nil {
		return m, err
	}
	m = message{version: header[0], kind: kind(header[1]), id: binary.BigEndian.Uint32(header[4:])}
	n := int(binary.BigEndian.Uint16(header[2:]))
	if n < headerSize || header[0] != version && m.kind != kindHello && m.kind != kindError {
		return m, fmt.Errorf("this is no OpenFlow 1.4: %x", header)
	}
	m.body = make([]byte, n-headerSize)
	_, err = io.ReadFull(from, m.body)
	return m, err
}

func (o *Conn) write(all ...message) (err error) {
	var b []byte
	for _, m := range all {
		if b, err = m.append(b); err != nil {
			return err
		}
	}
	o.send.Lock()
	defer o.send.Unlock()
	_, err = o.c.Write(b)
	return err
}

func (o *Conn) listen(from io.Reader) {
	var err error
	for err == nil {
		var m message
		if m, err = read(from); err == nil {
			err = o.handle(m)
		}
	}
	o.c.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = fmt.Errorf("the connection to the bridge ended: %w", err)
	for _, c := range o.waiting {
		c.done <- o.err
	}
	o.waiting = nil
	close(o.ended)
}

func (o *Conn) handle(m message) error {
	switch m.kind {
	case kindEchoRequest:
		return o.write(message{kind: kindEchoReply, id: m.id, body: m.body})
	case kindPacketIn:
		p, err := parsePacket(m.body)
		if err == nil {
			o.got(p)
		}
		return err
	case kindFlowRemoved:
		r, err := parseRemoved(m.body)
		if err == nil {
			o.got(r)
		}
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.waiting[m.id]
	if c == nil {
		return nil
	}
	done, err := true, error(nil)
	if m.kind == kindError {
		err = parseError(m.body)
	} else {
		done, err = c.take(m)
	}
	if done || err != nil {
		c.done <- err
		delete(o.waiting, m.id)
	}
	return nil
}

// ask sends messages, which get one number, and gives their answers to take until it is done.
func (o *Conn) ask(take func(message) (bool, error), all ...message) error {
	c := &call{take, make(chan error, 1)}
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return o.err
	}
	o.last++
	id := o.last
	o.waiting[id] = c
	o.mu.Unlock()
	for i := range all {
		all[i].id = id
		if all[i].kind == kindBundleAdd { // the message in it has the same number
			binary.BigEndian.PutUint32(all[i].body[8+4:], id)
		}
	}
	err := o.write(all...)
	if err == nil {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case err = <-c.done:
			return err
		case <-late.C:
			err = fmt.Errorf("the bridge does not answer: %w", os.ErrDeadlineExceeded)
		}
	}
	o.c.Close() // nobody knows what the bridge did
	return err
}

// Types of bundle control messages (section 7.3.9.2).
const (
	bundleOpen      = 0
	bundleCommit    = 4
	bundleCommitted = 5
	bundleFlags     = 3 // atomic, ordered
)

// Change makes all changes at once, or none.
func (o *Conn) Change(all ...Change) error {
	const bundle = 1 // a number is one of the connection's, and free again after the commit
	control := func(kind byte) message {
		return message{kind: kindBundleControl, body: []byte{0, 0, 0, bundle, 0, kind, 0, bundleFlags}}
	}
	messages := []message{control(bundleOpen)}
	for _, c := range all {
		b, err := message{kind: kindFlowMod, body: c.body()}.append([]byte{0, 0, 0, bundle, 0, 0, 0, bundleFlags})
		if err != nil {
			return err
		}
		messages = append(messages, message{kind: kindBundleAdd, body: b})
	}
	return o.ask(func(m message) (done bool, err error) {
		if m.kind != kindBundleControl || len(m.body) < 8 {
			return false, fmt.Errorf("the bridge answers with a message %d", m.kind)
		}
		return m.body[5] == bundleCommitted, nil
	}, append(messages, control(bundleCommit))...)
}

// Types and flags of multipart messages (section 7.3.5).
const (
	multipartFlow = 1
	multipartMore = 1
)

// Flows returns the flows whose cookie is the given one, as far as mask has a 1.
func (o *Conn) Flows(cookie, mask uint64) (all []Known, err error) {
	b := []byte{0, multipartFlow, 0, 0, 0, 0, 0, 0, firstTable, 0, 0, 0}
	b = append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(anyPort)), anyGroup), 0, 0, 0, 0)
	b = Match{}.append(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, cookie), mask))
	err = o.ask(func(m message) (done bool, err error) {
		if m.kind != kindMultipartReply || len(m.body) < 8 || binary.BigEndian.Uint16(m.body) != multipartFlow {
			return false, fmt.Errorf("the bridge answers with a message %d", m.kind)
		}
		for rest := m.body[8:]; len(rest) > 0; {
			var k Known
			if k, rest, err = parseKnown(rest); err != nil {
				return false, err
			}
			all = append(all, k)
		}
		return m.body[3]&multipartMore == 0, nil
	}, message{kind: kindMultipartRequest, body: b})
	return all, err
}

// Send lets the switch treat a packet as if it had come from its port, with actions instead of flows. It does not say whether that worked.
func (o *Conn) Send(p Packet, actions ...Action) error {
	return o.write(message{kind: kindPacketOut, body: p.body(actions)})
}

// Ended is closed when the connection ends.
func (o *Conn) Ended() <-chan struct{} { return o.ended }

// Close ends the connection. Flows stay.
func (o *Conn) Close() error {
	err := o.c.Close()
	<-o.ended
	return err
}
