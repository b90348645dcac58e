package frontdoor

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"net/http"
)

// tap reads an answer's metadata.resourceVersion while the answer passes, and keeps nothing of it. With most answers it is among the
// first bytes, after which they are not looked at any more; with lists of custom resources, whose keys are sorted, behind the items.
type tap struct {
	body  io.ReadCloser
	plain io.Reader // what body becomes unpacked; nil: body is plain
	held  bytes.Buffer
	find  finder
	found func(version string) // called once, with unread if there is none; of an answer that broke off before it, never
	room  []byte
}

// finder looks for the version in the bytes of an answer as they come. done: it has it, or gives up, with unread.
type finder interface {
	look(part []byte) (version string, done bool)
}

// tapped has found called before the client has read the whole answer.
func tapped(answer *http.Response, list bool, found func(version string)) {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	t := &tap{body: answer.Body, found: found}
	switch media {
	case "application/json":
		t.find = new(jsonFinder)
	case "application/vnd.kubernetes.protobuf":
		t.find = &protobufFinder{list: list}
	default:
		found(unread)
		return
	}
	switch answer.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		t.plain = &lazyGzip{from: io.TeeReader(answer.Body, &t.held)}
		t.room = make([]byte, 4<<10)
	default:
		found(unread)
		return
	}
	answer.Body = t
}

func (t *tap) Read(p []byte) (n int, err error) {
	if t.plain == nil {
		n, err = t.body.Read(p)
		t.look(p[:n], err)
		return n, err
	}
	for t.held.Len() == 0 && t.find != nil {
		n, err := t.plain.Read(t.room) // fills held with what it reads
		t.look(t.room[:n], err)
	}
	if t.held.Len() > 0 {
		return t.held.Read(p)
	}
	return t.body.Read(p)
}

func (t *tap) look(part []byte, err error) {
	if t.find == nil {
		return
	}
	version, done := t.find.look(part)
	switch {
	case done || errors.Is(err, io.EOF):
		t.find = nil
		t.found(version)
	case err != nil: // who got half an answer got no version
		t.find = nil
	}
}

func (t *tap) Close() error { return t.body.Close() }

// lazyGzip reads the header with the first bytes that are wanted.
type lazyGzip struct {
	from io.Reader
	gzip *gzip.Reader
}

func (l *lazyGzip) Read(p []byte) (n int, err error) {
	if l.gzip == nil {
		if l.gzip, err = gzip.NewReader(l.from); err != nil {
			return 0, err
		}
	}
	return l.gzip.Read(p)
}

const maxVersion = 64

// jsonFinder walks over JSON, and stops at the string metadata.resourceVersion of the outermost object.
type jsonFinder struct {
	depth    int
	inString bool
	escaped  bool
	text     [maxVersion]byte // the string that is being read, or was last
	length   int              // of it; more than maxVersion: it is longer than that
	meta     bool             // within the outermost object's metadata
	wanted   bool             // the next string is it
}

func (f *jsonFinder) look(part []byte) (string, bool) {
	for i := 0; i < len(part); i++ {
		c := part[i]
		if f.inString {
			switch {
			case f.escaped:
				f.escaped = false
				f.keep(c)
			case c == '\\':
				f.escaped = true
			case c == '"':
				f.inString = false
				if f.wanted {
					return f.string(), true
				}
			case f.depth > 2: // nothing there matters: on to where this string may end
				if end := bytes.IndexAny(part[i:], `"\`); end < 0 {
					return "", false
				} else {
					i += end - 1
				}
			default:
				f.keep(c)
			}
			continue
		}
		switch c {
		case '"':
			f.inString, f.length = true, 0
		case '{', '[':
			f.depth++
		case '}', ']':
			if f.depth--; f.depth == 1 && f.meta {
				return unread, true // metadata has ended without it
			} else if f.depth == 0 {
				return unread, true
			}
		case ':':
			switch f.depth {
			case 1:
				f.meta = f.string() == "metadata"
			case 2:
				f.wanted = f.meta && f.string() == "resourceVersion"
			}
		case ',':
			f.wanted = false
		}
	}
	return "", false
}

func (f *jsonFinder) keep(c byte) {
	if f.length < maxVersion {
		f.text[f.length] = c
	}
	f.length++
}

func (f *jsonFinder) string() string {
	if f.length > maxVersion {
		return ""
	}
	return string(f.text[:f.length])
}

// protobufFinder reads the envelope of Kubernetes (runtime.Unknown) and the first field of what is in it, which is its metadata.
// Source: k8s.io/apimachinery/pkg/runtime/generated.proto, pkg/apis/meta/v1/generated.proto.
type protobufFinder struct {
	list bool
	head []byte
}

const maxHead = 4 << 10

func (f *protobufFinder) look(part []byte) (string, bool) {
	f.head = append(f.head, part[:min(len(part), maxHead-len(f.head))]...)
	number := uint64(6) // ObjectMeta.resourceVersion
	if f.list {
		number = 2 // ListMeta.resourceVersion
	}
	rest, _ := bytes.CutPrefix(f.head, []byte("k8s\x00"))
	raw, _ := field(rest, 2)
	meta, _ := field(raw, 1)
	if version, whole := field(meta, number); whole && len(version) > 0 && len(version) <= maxVersion {
		return string(version), true
	}
	return unread, len(f.head) == maxHead
}

// field gives as much as is there of the field of this number; whole: that is all of it.
func field(message []byte, number uint64) (value []byte, whole bool) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return nil, false
		}
		message = message[n:]
		length, n := binary.Uvarint(message)
		if n <= 0 {
			return nil, false
		}
		message = message[n:]
		switch tag & 7 {
		case 0: // a number, which was read just now
		case 2:
			there := min(length, uint64(len(message)))
			if tag>>3 == number {
				return message[:there], there == length
			}
			message = message[there:]
		default:
			return nil, false
		}
	}
	return nil, false
}
