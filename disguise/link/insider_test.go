package link

import (
	"encoding/binary"
	"io"
	"testing"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/handshake"
)

// insider is a client that has the keys of a link, and seals what the fuzzer likes. Its numbers come from the fuzzer's bytes.
type insider struct {
	t       *testing.T
	in      []byte
	server  *handshake.Server
	key     handshake.PublicKey
	secrets handshake.Secrets
	link    *Link // the bridge's end
	conns   []*Conn
	codec   *block.Codec
	number  uint32
}

func newInsider(t *testing.T, in []byte, datagrams bool) *insider {
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	server, err := handshake.NewServer(id, new(handshake.Replays))
	if err != nil {
		t.Fatal(err)
	}
	p, err := handshake.Start(id.Public(), handshake.Hello{Time: time.Now()}, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := server.Read(p.Bytes(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, c, err := Respond(Options{Bridge: id.Public(), Datagram: func(uint16, []byte) {}}, a, 7, datagrams)
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 2000)
	if _, err := c.Fill(answer); err != nil {
		t.Fatal(err)
	}
	_, _, s, err := p.Finish(answer)
	if err != nil {
		t.Fatal(err)
	}
	return &insider{t: t, in: in, server: server, key: id.Public(), secrets: s, link: l, conns: []*Conn{c}, codec: block.NewCodec(s.Out)}
}

// draw returns the next byte, or zero when none is left.
func (i *insider) draw() (b byte) {
	if len(i.in) > 0 {
		b, i.in = i.in[0], i.in[1:]
	}
	return b
}

// offset draws a number near those at which something changes.
func (i *insider) offset() uint64 {
	switch v := uint64(i.draw()); v % 6 {
	case 0:
		return v
	case 1:
		return v * 1000
	case 2:
		return firstCredit - v
	case 3:
		return ^uint64(0) - v
	case 4:
		return v << 24
	default:
		return uint64(i.draw())<<8 | v
	}
}

func (i *insider) offsets(n int) (b []byte) {
	for range n {
		b = binary.BigEndian.AppendUint32(b, uint32(i.offset()))
	}
	return b
}

func (i *insider) long() []byte { return binary.BigEndian.AppendUint64(nil, i.offset()) }

// send gives a block to one of the connections, now and then after a gap in the numbers, or changed, or cut.
func (i *insider) send(f block.Function, data []byte) {
	if len(i.conns) == 0 {
		return
	}
	c := i.conns[int(i.draw())%len(i.conns)]
	if v := i.draw(); v > 250 {
		i.number += uint32(v) << 10
	}
	b := i.codec.Seal(nil, block.Header{Number: i.number, Data: len(data), Function: f, Padding: int(i.draw())}, data)
	i.number++
	if v := i.draw(); v > 250 {
		b[int(v)%len(b)] ^= 1
	} else if v > 245 {
		b = b[:len(b)-1]
	}
	_ = c.Take(b)
}

// rekey sends an rki in parts.
func (i *insider) rekey() {
	_, rki := handshake.StartRekey(i.secrets.Epoch + 1)
	for at := 1; at < len(rki); {
		part := rki[at:min(len(rki), at+1+int(i.draw())*8)]
		i.send(block.RekeyInit, append([]byte{rki[0], byte((at - 1) >> 8), byte(at - 1)}, part...))
		at += len(part)
	}
}

func (i *insider) join(datagrams bool) {
	b, err := i.secrets.Join(i.key, 7, nil, time.Now(), 0)
	if err != nil {
		i.t.Fatal(err)
	}
	_, a, err := i.server.Read(b, time.Now())
	if err != nil {
		i.t.Fatal(err)
	}
	if c, err := i.link.Adopt(a, datagrams); err == nil {
		i.conns = append(i.conns, c)
	}
}

func (i *insider) leave() {
	if len(i.conns) == 0 {
		return
	}
	n := int(i.draw()) % len(i.conns)
	i.conns[n].Leave([]error{nil, io.ErrUnexpectedEOF}[i.draw()%2])
	i.conns = append(i.conns[:n], i.conns[n+1:]...)
}

// program does what the bridge's own program and covers do meanwhile.
func (i *insider) program() {
	l := i.link
	switch i.draw() % 8 {
	case 0, 1:
		for _, c := range i.conns {
			_, _ = c.Fill(make([]byte, block.Overhead+int(i.draw())*4))
		}
	case 2:
		_ = l.SetWriteDeadline(time.Now().Add(time.Millisecond))
		_, _ = l.Write(make([]byte, int(i.draw())*1000))
	case 3:
		_ = l.SetReadDeadline(time.Now().Add(time.Millisecond / 10))
		_, _ = l.Read(make([]byte, int(i.draw())*100+1))
	case 4:
		l.tick()
	case 5:
		_ = l.SendDatagram(1, make([]byte, int(i.draw())*200))
	case 6:
		if i.draw() > 200 {
			_ = l.CloseWrite()
		}
	case 7:
		if i.draw() > 200 {
			_ = l.Close()
		}
	}
}

// bounded fails if the other side can make the link hold more than it may.
func (i *insider) bounded() {
	l := i.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.heard) > 2*maxConns || len(l.departed) > maxConns || len(l.keys.receive) > maxEpochs || l.dgbytes > queueBytes || l.claimed < 0 {
		i.t.Errorf("%d heard, %d departed, %d epochs, %d bytes of datagrams, %d claimed", len(l.heard), len(l.departed), len(l.keys.receive), l.dgbytes, l.claimed)
	}
}

// Nothing that somebody with the keys sends makes a link panic, hang, or hold too much.
func FuzzInsider(f *testing.F) {
	for function := range 256 {
		f.Add([]byte{4, byte(function), 3}, function%2 == 0) // three bytes are too few for each function but rst
	}
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, false)
	f.Add([]byte{2, 0, 0, 10, 50, 2, 0, 0, 1, 50, 3, 0, 1, 2, 3, 4}, true)
	f.Add([]byte{5, 200, 0, 0, 0, 0, 200, 9, 0, 50, 7, 7, 8, 0, 1, 9, 4}, false)
	f.Fuzz(func(t *testing.T, in []byte, datagrams bool) {
		i := newInsider(t, in, datagrams)
		for len(i.in) > 0 {
			switch i.draw() % 10 {
			case 0:
				i.send(block.Data, append(i.long(), make([]byte, int(i.draw())*5)...))
			case 1:
				i.send(block.Data, append(i.long(), make([]byte, int(i.draw())<<8)...))
			case 2:
				ack := append(append(i.long(), i.long()...), i.draw())
				i.send(block.Ack, append(ack, i.offsets(2+2*int(i.draw()%34))...))
			case 3:
				i.send(block.Fin, i.long())
			case 4:
				i.send(block.Function(i.draw()), make([]byte, i.draw()))
			case 5:
				i.rekey()
			case 6:
				head := []byte{i.secrets.Epoch + 1, byte(i.offset()), byte(i.offset())}
				i.send(block.RekeyInit+block.Function(i.draw()%2), append(head, make([]byte, int(i.draw())*6)...))
			case 7:
				i.join(datagrams)
			case 8:
				i.leave()
			case 9:
				i.program()
			}
			i.bounded()
		}
		i.link.Reset(Closed) // not deferred: a panic holds the lock
	})
}
