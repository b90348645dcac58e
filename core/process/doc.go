// Package process keeps hold of programs that outlive whoever started them: noted in a pid file, found again by the next one who
// looks after them, told from a later process with the same number, ended in a bounded time.
//
// cluster keeps the built-in Kubernetes by it, and that its containerd (module kith.dev/engine). This room never decides which
// program is the one wanted, and touches no process that no pid file of its caller tells of.
package process
