// Package contentcoding decodes the content codings of HTTP (RFC 9110, section 8.4.1): gzip, deflate, br and zstd.
package contentcoding

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Gzip is the name of that coding.
const Gzip = "gzip"

// mostWindow bounds the memory of one zstd stream, in bytes (RFC 9659, section 3).
const mostWindow = 8 << 20

// A Decoder decodes what is read. What it decodes may be much longer than what it reads: bound it.
type Decoder func(io.Reader) (io.ReadCloser, error)

var decoders = map[string]Decoder{
	"":        func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(r), nil },
	Gzip:      func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
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

// Of returns the coding that the values of Content-Encoding name, empty for none, and its decoder. It fails for several codings, and
// for one that is unknown.
func Of(values []string) (coding string, decode Decoder, err error) {
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		one = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(one)), "x-")
		if one == "" || one == "identity" {
			continue
		}
		if coding != "" {
			return "", nil, errors.New("two content codings")
		}
		coding = one
	}
	decode = decoders[coding]
	if decode == nil {
		return coding, nil, fmt.Errorf("the content coding %.20q, which nobody asked for", coding)
	}
	return coding, decode, nil
}
