// Package process supervises programs that outlive the process that started them: a pid file records each; the next process finds it there,
// distinguishes it from a later one with the same pid, and can end it in a bounded time.
//
// core/local/cluster runs the built-in Kubernetes with it, which runs its containerd with it (module kith.dev/engine). This package never decides
// which program is wanted, and touches no process that is not in a pid file of its caller.
package process
