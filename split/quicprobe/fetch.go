package quicprobe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/quic-go/quic-go/http3"
)

// A file below minFile arrives before its speed can be measured. A longer one is fetched again and again.
const (
	minFile  = 512 << 10 // bytes
	maxAgain = 100       // on one connection
)

// downloads maps a protocol (ALPN) to what fetches a file by it until the context ends.
var downloads = map[string]func(context.Context, *fetch) error{"h3": fetchH3, "hq-interop": fetchHQ}

// authority returns the server's name as in a URL.
func (p *prober) authority() string {
	host := p.name
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	if p.to.Port() == httpsPort {
		return host
	}
	return net.JoinHostPort(p.name, strconv.Itoa(int(p.to.Port())))
}

// again calls ask until the context ends. It fails if the downloads are too small.
func (f *fetch) again(ctx context.Context, ask func() error) error {
	for range maxAgain {
		before := f.bytes.Load()
		if err := ask(); err != nil {
			return err
		}
		if n := f.bytes.Load() - before; n < minFile {
			return &smallError{f.get, fmt.Sprintf("gives %d bytes only", n)}
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// fetchH3 fetches by HTTP/3 (RFC 9114).
func fetchH3(ctx context.Context, f *fetch) error {
	client := (&http3.Transport{DisableCompression: true}).NewClientConn(f.session.conn)
	target := &url.URL{Scheme: "https", Host: f.authority}
	at, err := target.Parse(f.get)
	if err != nil {
		return &smallError{f.get, "is no path on a server"}
	}
	return f.again(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return err
		}
		request.Header.Set("User-Agent", "heddle-probe")
		response, err := client.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return &smallError{f.get, "is answered by " + strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode)}
		}
		_, err = io.Copy(f, response.Body)
		return err
	})
}

// fetchHQ fetches by HTTP/0.9 on a stream per request, as QUIC's interoperability tests do.
func fetchHQ(ctx context.Context, f *fetch) error {
	return f.again(ctx, func() error {
		stream, err := f.session.conn.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stream, "GET %s\r\n", f.get); err != nil {
			return err
		}
		if err := stream.Close(); err != nil {
			return err
		}
		_, err = io.Copy(f, stream)
		return err
	})
}
