package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Answer is what most paths answer, with the fields that apply.
type Answer struct {
	Self
	Client  string              `json:"client,omitempty"`
	Method  string              `json:"method,omitempty"`
	Path    string              `json:"path,omitempty"`
	Host    string              `json:"host,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	Env     []string            `json:"env,omitempty"`
	Mounts  string              `json:"mounts,omitempty"`
	// Bytes and SHA256 of a body sent or fetched.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Status int    `json:"status,omitempty"`
	Body   string `json:"body,omitempty"`
	Local  string `json:"local,omitempty"`
	Remote string `json:"remote,omitempty"`
	// MS is how long a call, dial or packet took, in milliseconds.
	MS    float64 `json:"ms,omitempty"`
	Reply *Packet `json:"reply,omitempty"`
	Error string  `json:"error,omitempty"`
}

func (s *server) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("/", s.tell)
	m.HandleFunc("GET /file", s.file)     // ?path=
	m.HandleFunc("GET /list", s.list)     // ?path=
	m.HandleFunc("GET /blob", s.blob)     // ?bytes=
	m.HandleFunc("POST /sink", s.sink)    //
	m.HandleFunc("GET /call", s.call)     // ?url=
	m.HandleFunc("GET /dial", s.dial)     // ?addr=&network=
	m.HandleFunc("GET /udp", s.udp)       // ?addr=&size=
	m.HandleFunc("GET /log", s.log)       // ?line=
	m.HandleFunc("/healthz", s.health)    // GET; POST ?ok=
	m.HandleFunc("POST /write", s.write)  // ?path=, the body
	m.HandleFunc("GET /lookup", s.lookup) // ?host=
	return m
}

func answer(w http.ResponseWriter, status int, a Answer) {
	a.Self = self()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(a)
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, Answer{Error: err.Error()})
}

// tell answers every other path: who I am, who asks. With ?env and ?mounts it adds those.
func (s *server) tell(w http.ResponseWriter, r *http.Request) {
	a := Answer{Client: r.RemoteAddr, Method: r.Method, Path: r.URL.RequestURI(), Host: r.Host, Headers: r.Header}
	if r.URL.Query().Has("env") {
		a.Env = os.Environ()
	}
	if r.URL.Query().Has("mounts") {
		b, _ := os.ReadFile("/proc/self/mounts")
		a.Mounts = string(b)
	}
	answer(w, http.StatusOK, a)
}

func (s *server) file(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(r.URL.Query().Get("path"))
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	defer f.Close()
	_, _ = io.Copy(w, f)
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	if err := listDir(w, r.URL.Query().Get("path")); err != nil {
		refuse(w, http.StatusNotFound, err)
	}
}

func (s *server) write(w http.ResponseWriter, r *http.Request) {
	f, err := os.Create(r.URL.Query().Get("path"))
	if err != nil {
		refuse(w, http.StatusForbidden, err)
		return
	}
	n, err := io.Copy(f, r.Body)
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err != nil {
		refuse(w, http.StatusInsufficientStorage, err)
		return
	}
	answer(w, http.StatusOK, Answer{Bytes: n})
}

// blob answers with as many bytes as asked for, always the same, their hash in the header X-Sha256.
func (s *server) blob(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		refuse(w, http.StatusBadRequest, fmt.Errorf("bytes=%q: use a number up to 2^40", r.URL.Query().Get("bytes")))
		return
	}
	h := sha256.New()
	_, _ = io.Copy(h, blobReader(n))
	w.Header().Set("X-Sha256", hex.EncodeToString(h.Sum(nil)))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.Copy(w, blobReader(n))
}

func (s *server) sink(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	answer(w, http.StatusOK, Answer{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil)), Client: r.RemoteAddr})
}

func (s *server) log(w http.ResponseWriter, r *http.Request) {
	fmt.Println(r.URL.Query().Get("line"))
	answer(w, http.StatusOK, Answer{})
}

// health is for probes; POST ?ok=false makes it fail until ?ok=true.
func (s *server) health(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		ok, err := strconv.ParseBool(r.URL.Query().Get("ok"))
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		s.healthy.Store(ok)
		answer(w, http.StatusOK, Answer{})
		return
	}
	if !s.healthy.Load() {
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("told to be unwell"))
		return
	}
	answer(w, http.StatusOK, Answer{})
}

func ms(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

func (s *server) lookup(w http.ResponseWriter, r *http.Request) {
	addrs, err := net.DefaultResolver.LookupHost(r.Context(), r.URL.Query().Get("host"))
	if err != nil {
		refuse(w, http.StatusBadGateway, err)
		return
	}
	answer(w, http.StatusOK, Answer{Body: fmt.Sprint(addrs)})
}
