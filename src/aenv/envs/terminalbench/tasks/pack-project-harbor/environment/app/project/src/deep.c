int deep;
