package carrier

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5"
	"crypto/rc4"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"strconv"
)

// lock is the encryption of a PDF by passwords (ISO 32000-2, section 7.6).
type lock struct {
	entries  dictionary // the encryption dictionary
	id       []byte     // the first identifier of the document
	metadata bool       // metadata are encrypted too
}

// lockOf returns the lock of a file that is encrypted. If several trailers name an encryption dictionary, the first one counts.
func lockOf(file []byte) (l lock, encrypted bool) {
	var value, id []byte
	for o := range objects(file) {
		if o.number == 0 || o.entries.is("Type", "XRef") {
			if value, id = o.entries.get("Encrypt"), o.entries.get("ID"); value != nil {
				break
			}
		}
	}
	if value == nil {
		return lock{}, false
	}
	read := reader{file: bytes.TrimLeft(id, "[")}
	l.id = read.text()
	if bytes.HasPrefix(value, []byte("<<")) {
		read := reader{file: value}
		l.entries = read.dictionary(0)
	} else if number, _, _ := bytes.Cut(value, []byte(" ")); len(number) > 0 {
		n, _ := strconv.Atoi(string(number))
		for o := range objects(file) {
			if o.number == n {
				l.entries = o.entries
			}
		}
	}
	l.metadata = string(l.entries.get("EncryptMetadata")) != "false"
	return l, true
}

// covers reports whether the stream of a dictionary is encrypted.
func (l *lock) covers(d dictionary) bool {
	return !d.is("Type", "XRef") && (l.metadata || !d.is("Type", "Metadata")) && !bytes.Contains(d.get("Filter"), []byte("/Crypt"))
}

// closed reports whether streams are encrypted with AES, and the empty password does not open the document.
func (l *lock) closed() bool {
	owner, user := l.text("O"), l.text("U")
	switch revision := l.entries.integer("R"); {
	case !l.entries.is("Filter", "Standard"):
	case revision == 4 && l.method("AESV2") && len(owner) >= 32 && len(user) >= 32:
		return !l.opens128(padding[:], owner, user) && !l.opens128(ownerOpens(owner), owner, user)
	case revision == 6 && l.method("AESV3") && len(owner) >= 48 && len(user) >= 48:
		return !bytes.Equal(hash256(user[32:40], nil), user[:32]) && !bytes.Equal(hash256(owner[32:40], user[:48]), owner[:32])
	}
	return false
}

func (l *lock) text(name string) []byte {
	read := reader{file: l.entries.get(name)}
	if text := read.text(); !read.failed {
		return text
	}
	return nil
}

// method reports whether streams are encrypted by the crypt filter of a method.
func (l *lock) method(name string) bool {
	filters := reader{file: l.entries.get("CF")}
	filter := reader{file: filters.dictionary(0).get(string(bytes.TrimPrefix(l.entries.get("StmF"), []byte("/"))))}
	return filter.dictionary(0).is("CFM", name)
}

// padding is the empty password of AES-128, filled up (algorithm 2, step a).
var padding = [32]byte{0x28, 0xbf, 0x4e, 0x5e, 0x4e, 0x75, 0x8a, 0x41, 0x64, 0x00, 0x4e, 0x56, 0xff, 0xfa, 0x01, 0x08,
	0x2e, 0x2e, 0x00, 0xb6, 0xd0, 0x68, 0x3e, 0x80, 0x2f, 0x0c, 0xa9, 0xfe, 0x64, 0x53, 0x69, 0x7a}

const rounds = 50 // of MD5 after the first

// opens128 reports whether a filled up password is the user's (algorithms 2, 5 and 6).
func (l *lock) opens128(password, owner, user []byte) bool {
	rights, _ := strconv.Atoi(string(l.entries.get("P")))
	text := bytes.Join([][]byte{password, owner[:32], binary.LittleEndian.AppendUint32(nil, uint32(rights)), l.id}, nil)
	if !l.metadata {
		text = append(text, 0xff, 0xff, 0xff, 0xff)
	}
	key := md5.Sum(text)
	for range rounds {
		key = md5.Sum(key[:])
	}
	sum := md5.Sum(append(padding[:len(padding):len(padding)], l.id...))
	for i := range 20 {
		arc4(key, byte(i), sum[:])
	}
	return bytes.Equal(sum[:], user[:len(sum)])
}

// ownerOpens returns the user's password that the empty password of the owner gives (algorithm 7).
func ownerOpens(owner []byte) []byte {
	key := md5.Sum(padding[:])
	for range rounds {
		key = md5.Sum(key[:])
	}
	out := bytes.Clone(owner[:32])
	for i := range 20 {
		arc4(key, byte(19-i), out)
	}
	return out
}

func arc4(key [md5.Size]byte, with byte, text []byte) {
	for i := range key {
		key[i] ^= with
	}
	c, _ := rc4.NewCipher(key[:]) // it takes keys of this size
	c.XORKeyStream(text, text)
}

// hash256 is the hash of the empty password for AES-256 (algorithm 2.B).
func hash256(salt, user []byte) []byte {
	first := sha256.Sum256(append(bytes.Clone(salt), user...))
	key, last := first[:], 0
	for i := 0; i < 64 || last > i-32; i++ {
		text := bytes.Repeat(append(bytes.Clone(key), user...), 64)
		c, _ := aes.NewCipher(key[:16])
		cipher.NewCBCEncrypter(c, key[16:32]).CryptBlocks(text, text)
		sum := 0
		for _, b := range text[:16] {
			sum += int(b) // 256 is 1 modulo 3
		}
		last = int(text[len(text)-1])
		switch sum % 3 {
		case 0:
			k := sha256.Sum256(text)
			key = k[:]
		case 1:
			k := sha512.Sum384(text)
			key = k[:]
		case 2:
			k := sha512.Sum512(text)
			key = k[:]
		}
	}
	return key[:32]
}
