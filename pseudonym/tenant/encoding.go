package tenant

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// gzipped is the one encoding that the site's server is asked for, and only if the client takes it.
const gzipped = "gzip"

// mostWindow bounds the memory of one zstd stream, in bytes (RFC 9659, section 3).
const mostWindow = 8 << 20

// encodings asks the site's server for the encoding that pages are packed in again.
func encodings(header http.Header) {
	accepted := "identity"
	for _, value := range header.Values("Accept-Encoding") {
		for one := range strings.SplitSeq(value, ",") {
			name, quality, _ := strings.Cut(strings.TrimSpace(one), ";")
			if (strings.EqualFold(name, gzipped) || name == "*") && strings.TrimSpace(quality) != "q=0" {
				accepted = gzipped
			}
		}
	}
	header.Set("Accept-Encoding", accepted)
}

// decoder unpacks what is read.
type decoder func(io.Reader) (io.ReadCloser, error)

var decoders = map[string]decoder{
	"":        func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(r), nil },
	gzipped:   func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"deflate": func(r io.Reader) (io.ReadCloser, error) { return zlib.NewReader(r) },
	"br":      func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(brotli.NewReader(r)), nil },
	"zstd": func(r io.Reader) (io.ReadCloser, error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	},
}

// decoderOf returns the encoding of an answer, empty for none, and what unpacks it. Some servers send one that nobody asked for.
func decoderOf(header http.Header) (encoding string, decode decoder, err error) {
	for one := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		one = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(one)), "x-")
		if one == "" || one == "identity" {
			continue
		}
		if encoding != "" {
			return "", nil, errors.New("it sends a page in two encodings")
		}
		encoding = one
	}
	decode = decoders[encoding]
	if decode == nil {
		err = fmt.Errorf("it sends a page in the encoding %q, which nobody asked for", encoding)
	}
	return encoding, decode, err
}

// packer packs what is written, and lets it leave at once.
type packer struct{ *gzip.Writer }

func newPacker(w io.Writer) packer {
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // which is a level
	return packer{z}
}

func (p packer) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	return n, errors.Join(err, p.Flush())
}
