// Package bugreport makes the archive of `kith bugreport`: what helps somebody else to find out what is wrong with this Kith, and
// nothing that is secret. kithd makes it, with what it knows of itself and of the cluster (daemon/backend), and the command line where
// no kithd answers.
//
// What is secret is kept out by not being asked for: no Secret, ConfigMap, key file or kubeconfig is read, and of pods only a summary.
// What programs wrote by themselves, logs above all, goes through package redact. It knows no Kubernetes, and changes nothing.
package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/bugreport/redact"
)

// Part is one file of a report.
type Part struct {
	Name string // in the archive: "logs/kithd.log"
	What string // it is, in words
	// Make gives its text. It must be back soon after ctx ends; an error is what the file says.
	Make func(ctx context.Context) ([]byte, error)
	End  bool // of one that is too long the end is kept, and not the beginning
	Raw  bool // no text: it is taken as it is
}

const (
	// maxPart bounds a file of the archive in bytes, and maxAll all of them: one is in memory at a time.
	maxPart, maxAll = 2 << 20, 16 << 20
	// partTime bounds the making of one, and allTime that of all: on a machine that is sick much has no answer, and a report is wanted all the same.
	partTime, allTime = 20 * time.Second, 2 * time.Minute
)

// Write writes the archive, a tar compressed with gzip. Its first file says what is in it. It takes allTime and the time of its reader: parts that
// have none left say so.
func Write(ctx context.Context, to io.Writer, now time.Time, parts []Part) error {
	packed := gzip.NewWriter(to)
	files := tar.NewWriter(packed)
	add := func(name string, text []byte) error {
		err := files.WriteHeader(&tar.Header{Name: api.BugReportFolder + name, Mode: 0o600, Size: int64(len(text)), ModTime: now, Format: tar.FormatPAX})
		if err == nil {
			_, err = files.Write(text)
		}
		if err == nil {
			err = errors.Join(files.Flush(), packed.Flush())
		}
		return err
	}
	if err := add("README.txt", readme(now, parts)); err != nil {
		return err
	}
	making, cancel := context.WithTimeout(ctx, allTime)
	defer cancel()
	left := maxAll
	for _, p := range parts {
		text := p.make(making, min(maxPart, left))
		left -= len(text)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("bug report: %w", err)
		}
		if err := add(p.Name, text); err != nil {
			return err
		}
	}
	return errors.Join(files.Close(), packed.Close())
}

func (p Part) make(ctx context.Context, most int) []byte {
	if ctx.Err() != nil {
		return bounded([]byte("not all of it is here: the parts before it took too long\n"), most, false)
	}
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	text, err := p.Make(ctx)
	switch {
	case p.Raw && err == nil && len(text) <= most:
		return text
	case p.Raw && err == nil:
		text, err = nil, fmt.Errorf("it has %d bytes, and %d are left", len(text), most)
	case p.Raw:
		text = nil
	}
	text = redact.Text(bounded(text, most, p.End))
	if err != nil {
		text = fmt.Appendf(text, "not all of it is here: %s\n", redact.String(err.Error()))
	}
	return bounded(text, most, p.End)
}

const leftOut = "[more was left out]\n"

// bounded cuts a text between lines.
func bounded(text []byte, most int, end bool) []byte {
	if len(text) <= most {
		return text
	}
	room := max(most-len(leftOut), 0)
	if end {
		text = text[len(text)-room:]
		if _, whole, found := bytes.Cut(text, []byte("\n")); found {
			text = whole
		}
		return append([]byte(leftOut), text...)
	}
	whole := bytes.LastIndexByte(text[:room], '\n') + 1
	return append(text[:whole:whole], leftOut...)
}

func readme(now time.Time, parts []Part) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "A bug report of Kith, made %s.\n\n", now.UTC().Format(time.RFC3339))
	for _, p := range parts {
		fmt.Fprintf(&b, "%-28s  %s\n", p.Name, p.What)
	}
	b.WriteString("\nNot in it: Secrets, ConfigMaps, environments, arguments and volumes of pods, annotations of others than Kith, kubeconfigs, keys,\n" +
		"six-digit codes. In a log, what looks like a key, a token or a password, and what a pod runs and mounts, is " + redact.Mark + ".\n" +
		"Names and IP addresses are in it.\n")
	return b.Bytes()
}

// Profiles are those of this process: where its goroutines are, and where its memory was asked for. They hold no values.
func Profiles() (parts []Part) {
	for _, p := range []struct{ name, what string }{{"goroutine", "where the goroutines of kithd are"}, {"heap", "where the memory of kithd was asked for"}} {
		parts = append(parts, Part{Name: "pprof/" + p.name + ".pb.gz", What: p.what + ", for go tool pprof", Raw: true, Make: func(context.Context) ([]byte, error) {
			var b bytes.Buffer
			err := pprof.Lookup(p.name).WriteTo(&b, 0)
			return b.Bytes(), err
		}})
	}
	return parts
}

// Text is a part that is known already.
func Text(name, what, text string) Part {
	return Part{Name: name, What: what, Make: func(context.Context) ([]byte, error) { return []byte(text), nil }}
}
