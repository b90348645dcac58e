package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// cache is as much of Redis and of Sentinel as the client speaks to. refuse says what it answers to a SET, if anything.
type cache struct {
	mu     sync.Mutex
	keys   map[string]bool
	refuse func(n int) string
	sets   int
}

func (s *cache) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	host, port, _ := net.SplitHostPort(l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					var words, length int
					if _, err := fmt.Fscanf(in, "*%d\r\n", &words); err != nil {
						return
					}
					var said []string
					for range words {
						var word string
						if _, err := fmt.Fscanf(in, "$%d\r\n%s\r\n", &length, &word); err != nil {
							return
						}
						said = append(said, word)
					}
					fmt.Fprint(c, s.answer(said, host, port))
				}
			}()
		}
	}()
	return l.Addr().String()
}

func (s *cache) answer(said []string, host, port string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch said[0] {
	case "SENTINEL":
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	case "AUTH":
		return "+OK\r\n"
	case "EXISTS":
		if s.keys[said[1]] {
			return ":1\r\n"
		}
		return ":0\r\n"
	}
	s.sets++
	if why := s.refuse(s.sets); why != "" {
		return "-" + why + "\r\n"
	}
	s.keys[said[1]] = true
	return "+OK\r\n"
}

func TestWritesThatWereLostAndRefusedAreCounted(t *testing.T) {
	s := &cache{keys: map[string]bool{}, refuse: func(n int) string {
		if n == 5 {
			return "READONLY You can't write against a read only replica."
		}
		return ""
	}}
	addr := s.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			s.mu.Lock()
			if len(s.keys) >= 10 { // a failover that forgets one
				delete(s.keys, slices.Sorted(maps.Keys(s.keys))[0])
				s.mu.Unlock()
				return
			}
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	}()
	w, err := writes(ctx, "me", &redis{sentinel: addr, name: "shop", password: "secret", timeout: time.Second}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if w.Acked < 8 || w.Failed != 1 || w.Lost != 1 || w.Checked != "127.0.0.1" || len(w.Primaries) != 1 {
		t.Errorf("report %+v", w)
	}
	for kind := range w.Errors {
		if !strings.HasPrefix(kind, "READONLY") {
			t.Errorf("errors %v", w.Errors)
		}
	}
}

func TestKindsOfErrorsNameNoPort(t *testing.T) {
	_, err := net.DialTimeout("tcp", "127.0.0.1:1", time.Second)
	if got := kindOf(fmt.Errorf("primary: %w", err)); got != "primary: dial: connect: connection refused" {
		t.Errorf("%q", got)
	}
}
