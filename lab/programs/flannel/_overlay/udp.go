// Package udp without the backend, whose proxy is written in C.
package udp
