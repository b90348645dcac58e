// The containerd of the supervisor's tests: it notes each start beside its configuration and answers on the socket
// named there, until it is told to end.
package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	path := os.Args[2] // --config PATH
	conf, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	socket := regexp.MustCompile(`(?s)\[grpc\]\s*address = "([^"]+)"`).FindSubmatch(conf)[1]
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "starts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, os.Getpid())
	f.Close()
	os.Remove(string(socket))
	l, err := net.Listen("unix", string(socket))
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		c.Close()
	}
}
