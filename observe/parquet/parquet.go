// Package parquet writes Parquet tables of the columns that traces need. The footer and the headers are parquet-go's. That library's
// own writer takes any Go type, and so brings four megabytes along: Protocol Buffers, geometry, JSON and six ways to compress.
package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// magic begins and ends a file.
const magic = "PAR1"

// pageSize is where a page ends, at the next row.
const pageSize = 1 << 20

var errTooLong = errors.New("a row has more than 2 GiB in one column")

// Pair is a key and a value that the file keeps beside the table.
type Pair = format.KeyValue

// Write writes rows as one table of a name.
func Write[R any](out io.Writer, name string, columns []Column[R], rows []R, about ...Pair) error {
	compressor, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer compressor.Close()
	w := &writer{out: out, compressor: compressor}
	w.write([]byte(magic))
	file := format.FileMetaData{Version: 1, NumRows: int64(len(rows)), KeyValueMetadata: about, CreatedBy: "heddle",
		Schema: []format.SchemaElement{{Name: name, NumChildren: thrift.New(int32(len(columns)))}}}
	group := format.RowGroup{NumRows: int64(len(rows))}
	for _, c := range columns {
		file.Schema = append(file.Schema, c.schema()...)
		chunk := writeColumn(w, &c, rows)
		group.Columns = append(group.Columns, chunk)
		group.TotalByteSize += chunk.MetaData.TotalUncompressedSize
		group.TotalCompressedSize += chunk.MetaData.TotalCompressedSize
	}
	if len(rows) > 0 {
		group.FileOffset = group.Columns[0].MetaData.DataPageOffset
		file.RowGroups = append(file.RowGroups, group)
	}
	length := w.encode(&file)
	w.write(binary.LittleEndian.AppendUint32(nil, uint32(length)))
	w.write([]byte(magic))
	return w.err
}

// writeColumn writes the values of all rows, and returns where they are.
func writeColumn[R any](w *writer, c *Column[R], rows []R) format.ColumnChunk {
	about := format.ColumnMetaData{Type: c.leaf.Type.V, Encoding: []format.Encoding{format.Plain, format.RLE}, PathInSchema: c.path,
		Codec: format.Zstd, DataPageOffset: w.at}
	var p page
	for i := range rows {
		c.append(&p, &rows[i])
		if p.size() >= pageSize || i == len(rows)-1 {
			about.TotalUncompressedSize += w.page(&p, c.list())
			about.NumValues += int64(p.entries)
			p = page{}
		}
	}
	about.TotalCompressedSize = w.at - about.DataPageOffset
	return format.ColumnChunk{MetaData: about}
}

// writer counts what it writes, and keeps the first error.
type writer struct {
	out        io.Writer
	at         int64
	err        error
	compressor *zstd.Encoder
}

func (w *writer) write(b []byte) {
	if w.err != nil {
		return
	}
	_, w.err = w.out.Write(b)
	w.at += int64(len(b))
}

// encode writes a structure of the format, and returns its length.
func (w *writer) encode(v any) int {
	var b bytes.Buffer
	if err := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(&b)).Encode(v); err != nil && w.err == nil {
		w.err = err
	}
	w.write(b.Bytes())
	return b.Len()
}

// page writes a page, and returns its size before it was compressed.
func (w *writer) page(p *page, list bool) int64 {
	content := p.bytes(list)
	if len(content) > math.MaxInt32 && w.err == nil {
		w.err = errTooLong
	}
	packed := w.compressor.EncodeAll(content, nil)
	header := w.encode(&format.PageHeader{Type: format.DataPage, UncompressedPageSize: int32(len(content)), CompressedPageSize: int32(len(packed)),
		DataPageHeader: thrift.New(format.DataPageHeader{NumValues: int32(p.entries), Encoding: format.Plain,
			DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})})
	w.write(packed)
	return int64(header + len(content))
}
