// The engine of the supervisor's tests: a program that lives as kith-k8s does, and as k3s does when it is called so. What it shall do stands in files of
// its data folder: "refuse" makes it end at once with the file's text as last words; "deaf" makes it ignore
// SIGTERM. It notes each start in "starts" and is ready when it has written "ready". At a socket that it inherits it repeats what it is told.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	var dir string
	for _, a := range os.Args {
		if d, ok := strings.CutPrefix(a, "--data-dir="); ok {
			dir = d
		}
		if file, ok := strings.CutPrefix(a, "--config="); ok { // called as K3s is
			dir = filepath.Dir(file)
		}
	}
	starts, err := os.OpenFile(filepath.Join(dir, "starts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(starts, os.Getpid(), strings.Join(os.Args[1:], " "))
	starts.Close()
	if words, err := os.ReadFile(filepath.Join(dir, "refuse")); err == nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", string(words))
		os.Exit(1)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if err := os.WriteFile(filepath.Join(dir, "ready"), []byte(fmt.Sprint(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	if os.Getenv("KITH_API_LISTENER") == "3" {
		go answer()
	}
	for range signals {
		if _, err := os.Stat(filepath.Join(dir, "deaf")); err != nil {
			return
		}
	}
}

func answer() {
	l, err := net.FileListener(os.NewFile(3, ""))
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer conn.Close()
			if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				fmt.Fprint(conn, "you asked: ", line)
			}
		}()
	}
}
