package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quicgo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "fetch" {
		return runFetch(ctx, args[1:])
	}
	if len(args) == 0 || args[0] != "serve" {
		return fmt.Errorf("usage: quicgo serve|fetch [FLAGS]")
	}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", "", "address and port")
	certificate := flags.String("certificate", "", "file in PEM")
	key := flags.String("key", "", "file in PEM")
	root := flags.String("root", "", "directory of files to serve")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return serve(ctx, *listen, *certificate, *key, *root)
}

// serve serves over HTTP/3 only: a fall-back to TCP would hide a QUIC failure. QLOGDIR sets the log directory.
func serve(ctx context.Context, listen, certificate, key, root string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	server := &http3.Server{
		Addr:       listen,
		Handler:    handler(root),
		TLSConfig:  http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
		QUICConfig: &quic.Config{Tracer: qlog.DefaultConnectionTracer},
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	fmt.Println("listening on", listen)
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// handler answers GET of a number with as many bytes, other GETs with a file of root, and POST with the received byte count.
func handler(root string) http.Handler {
	files := http.NotFoundHandler()
	if root != "" {
		files = http.FileServer(http.Dir(root))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if n, err := io.Copy(io.Discard, r.Body); err == nil {
				fmt.Fprint(w, n)
			}
			return
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
		if err != nil {
			files.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		io.CopyN(w, zeros{}, n) // fails only if the client left
	})
}

// zeros reads as zero bytes without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
