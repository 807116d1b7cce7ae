package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
)

// test is one measurement. Its result is printed as JSON.
type test struct {
	to, name, certificate string
	length, omit          time.Duration
	size                  int64
	pause                 time.Duration
	up                    bool
	version               int
}

// result is what the receiver got after the omitted time.
type result struct {
	Bytes         int64   `json:"bytes"`
	Seconds       float64 `json:"seconds"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Version       string  `json:"version"`
}

func runFetch(ctx context.Context, args []string) error {
	var t test
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	flags.StringVar(&t.to, "to", "", "address and port of the server, or of a relay to it")
	flags.StringVar(&t.name, "name", "", "the server's name in its certificate")
	flags.StringVar(&t.certificate, "certificate", "", "what to trust, a file in PEM")
	flags.DurationVar(&t.length, "for", 5*time.Second, "how long to measure")
	flags.DurationVar(&t.omit, "omit", time.Second, "how much before that does not count")
	flags.Int64Var(&t.size, "size", 64<<20, "the most bytes to move")
	flags.DurationVar(&t.pause, "pause", 0, "get one size after another with so long between them; pauses do not count")
	flags.BoolVar(&t.up, "up", false, "send")
	flags.IntVar(&t.version, "version", 1, "the version of QUIC: 1 or 2")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// The timeout makes a run fail if the server stops answering.
	ctx, cancel := context.WithTimeout(ctx, t.omit+t.length+time.Minute)
	defer cancel()
	r, err := t.run(ctx)
	if err != nil {
		return err
	}
	if r.Seconds <= 0 {
		return errors.New("it ended before the part that counts began")
	}
	r.BitsPerSecond = float64(r.Bytes) * 8 / r.Seconds
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (t test) run(ctx context.Context) (result, error) {
	pem, err := os.ReadFile(t.certificate)
	if err != nil {
		return result{}, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return result{}, fmt.Errorf("%s holds no certificate", t.certificate)
	}
	version := map[int]quic.Version{1: quic.Version1, 2: quic.Version2}[t.version]
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		QUICConfig: &quic.Config{
			Versions: []quic.Version{version}, Tracer: qlog.DefaultConnectionTracer,
			// As large as Chromium's. quiche detects a loss at the end of a path's data only when it next sends there;
			// with a small window the transfer would wait for that.
			InitialStreamReceiveWindow: 6 << 20, MaxStreamReceiveWindow: 6 << 20,
			InitialConnectionReceiveWindow: 15 << 20, MaxConnectionReceiveWindow: 15 << 20,
		},
		Dial: func(ctx context.Context, _ string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, t.to, tlsConfig, config)
		},
	}
	defer transport.Close()
	move := t.download
	switch {
	case t.up:
		move = t.upload
	case t.pause > 0:
		move = t.bursts
	}
	r, err := move(ctx, &http.Client{Transport: transport})
	r.Version = version.String()
	return r, err
}

// download counts what arrives after omit, until the time is up or the transfer is complete.
func (t test) download(ctx context.Context, client *http.Client) (result, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/%d", t.name, t.size), nil)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return result{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return result{}, errors.New(response.Status)
	}
	var r result
	from := began.Add(t.omit)
	for buf := make([]byte, 64<<10); ; {
		n, err := response.Body.Read(buf)
		now := time.Now()
		if now.After(from) {
			r.Bytes += int64(n)
			r.Seconds = now.Sub(from).Seconds()
		}
		if errors.Is(err, io.EOF) || (err == nil && now.Sub(from) >= t.length) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

// bursts fetches objects one after another over one connection, like the pages of a visit. It counts from each request
// to the last byte of its answer.
func (t test) bursts(ctx context.Context, client *http.Client) (result, error) {
	var sum result
	for began := time.Now(); time.Since(began) < t.omit+t.length; time.Sleep(t.pause) {
		from := time.Now()
		one, err := test{name: t.name, size: t.size, length: t.length}.download(ctx, client)
		if err != nil {
			return sum, err
		}
		if from.Sub(began) >= t.omit {
			sum.Bytes += one.Bytes
			sum.Seconds += time.Since(from).Seconds()
		}
	}
	return sum, nil
}

// upload counts what the server reports, less what was sent during omit. Its time lasts until that report, so that it
// covers data that is in flight when sending ends.
func (t test) upload(ctx context.Context, client *http.Client) (result, error) {
	body := &source{left: t.size, from: time.Now().Add(t.omit)}
	body.until = body.from.Add(t.length)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://%s/", t.name), body)
	if err != nil {
		return result{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return result{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64))
	if err != nil {
		return result{}, err
	}
	got, err := strconv.ParseInt(strings.TrimSpace(string(answer)), 10, 64)
	if err != nil || response.StatusCode != http.StatusOK {
		return result{}, fmt.Errorf("the server answers %s %q", response.Status, answer)
	}
	if sent := body.sent.Load(); got != sent {
		return result{}, fmt.Errorf("the server got %d of %d bytes", got, sent)
	}
	return result{Bytes: got - body.omitted.Load(), Seconds: time.Since(body.from).Seconds()}, nil
}

// source reads as zero bytes until a time.
type source struct {
	left          int64
	from, until   time.Time
	sent, omitted atomic.Int64
}

func (s *source) Read(p []byte) (int, error) {
	now := time.Now()
	if s.left <= 0 || now.After(s.until) {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), s.left))
	clear(p[:n])
	s.left -= int64(n)
	s.sent.Add(int64(n))
	if now.Before(s.from) {
		s.omitted.Add(int64(n))
	}
	return n, nil
}
